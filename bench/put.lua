-- PUT of all keys in turn. See common.lua.
dofile(os.getenv("KVORUM_BENCH") .. "/common.lua")
function init(arguments) request = prepare(arguments, "PUT") end
