-- GET of all keys in turn; a key that is not there counts as an error. See common.lua.
dofile(os.getenv("KVORUM_BENCH") .. "/common.lua")
function init(arguments) request = prepare(arguments, "GET") end
