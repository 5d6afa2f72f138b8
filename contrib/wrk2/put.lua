-- PUT of uniformly drawn keys. See common.lua.
dofile((debug.getinfo(1, "S").source:sub(2):match(".*/") or "./") .. "common.lua")
function init(arguments) prepare(arguments) end
function request() return build("PUT") end
