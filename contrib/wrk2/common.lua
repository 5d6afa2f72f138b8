-- What put.lua, get.lua and mixed.lua share: keys and values as `kvorum bench` has them (values differ), and a line of
-- JSON at the end. Arguments behind `--`: keys (200000), bytes of a value (100), percent of PUT (50, for mixed.lua).

local threads = {}

function setup(thread)
   thread:set("number", #threads)
   table.insert(threads, thread)
end

function prepare(arguments)
   keys, bytes, share = tonumber(arguments[1] or 200000), tonumber(arguments[2] or 100), tonumber(arguments[3] or 50)
   math.randomseed(number + 1)
   value = string.rep("v", bytes)
end

function build(method)
   local path = string.format("/v0/entity?id=key%08d", math.random(keys) - 1)
   return wrk.format(method, path, nil, method == "PUT" and value or nil)
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '\nRESULT {"requests": %d, "seconds": %.6f, "errors": %d, "p50_ms": %.3f, "p99_ms": %.3f, "max_ms": %.3f}\n',
      summary.requests, summary.duration / 1e6,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3))
end
