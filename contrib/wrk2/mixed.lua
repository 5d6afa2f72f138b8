-- PUT and GET at random. See common.lua.
dofile((debug.getinfo(1, "S").source:sub(2):match(".*/") or "./") .. "common.lua")
function init(arguments) prepare(arguments) end
function request() return build(math.random(100) <= share and "PUT" or "GET") end
