-- What put.lua and get.lua share: threads begin at different keys, requests are built before the clock starts,
-- and the result is one line of JSON.

local threads = {}

function setup(thread)
   thread:set("number", #threads)
   table.insert(threads, thread)
end

-- Arguments behind `--`: number of keys, bytes of a value, number of threads, the first key.
function prepare(arguments, method)
   local keys, bytes, all, first = tonumber(arguments[1]), tonumber(arguments[2]), tonumber(arguments[3]), tonumber(arguments[4])
   local body = method == "PUT" and string.rep("v", bytes) or nil
   local build = function(key) return wrk.format(method, string.format("/v0/entity?id=key%08d", key), nil, body) end
   local at = (first + math.floor(keys / all * number) - 1) % keys
   local ready = {}
   -- Long values would not fit into memory once for every key: those are built when they are sent.
   if method == "GET" or keys * bytes < 64e6 then
      for key = 0, keys - 1 do ready[key] = build(key) end
   end
   return function()
      at = at + 1
      if at >= keys then at = 0 end
      return ready[at] or build(at)
   end
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format(
      '\nRESULT {"requests": %d, "seconds": %.6f, "errors": %d, "p50_us": %d, "p99_us": %d, "p999_us": %d, "max_us": %d}\n',
      summary.requests, summary.duration / 1e6,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout,
      latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max))
end
