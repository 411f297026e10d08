-- Sends $WRK_METHOD with $WRK_BODY (may be empty), and writes wrk's result with its full latency
-- histogram (microseconds) as JSON to $WRK_JSON. wrk passes `done` a histogram that it has already
-- back-filled for "coordinated omission". The lab removes the added values when it reads the file,
-- and needs the exact duration and the number of requests for this.

wrk.method = os.getenv("WRK_METHOD")
if os.getenv("WRK_BODY") ~= "" then
  wrk.body = os.getenv("WRK_BODY")
  wrk.headers["Content-Type"] = "application/json"
end

local ffi = require("ffi")
ffi.cdef [[
  typedef struct { uint64_t count, limit, min, max; uint64_t data[]; } wrk_stats;
  struct lab_timeval { long seconds, microseconds; };
  int gettimeofday(struct lab_timeval *now, void *zone);
]]

-- Returns the microseconds since the epoch. Lua's own os.time() returns only whole seconds.
local function now_us()
  local now = ffi.new("struct lab_timeval")
  ffi.C.gettimeofday(now, nil)
  return tonumber(now.seconds) * 1e6 + tonumber(now.microseconds)
end

-- Reads the buckets straight from wrk's own array. wrk's Lua call latency(i) walks the whole array
-- for each i, which takes minutes for a histogram of 20,000 buckets that reaches up to a second.
local function buckets(latency)
  local stats = ffi.cast("wrk_stats **", latency)[0]
  if tonumber(stats.min) ~= latency.min or tonumber(stats.max) ~= latency.max then
    error("this wrk keeps its histogram differently: min and max do not match")
  end
  local rows = {}
  for value = latency.min, latency.max do
    local count = tonumber(stats.data[value])
    if count > 0 then
      rows[#rows + 1] = string.format("[%d,%d]", value, count)
    end
  end
  if #rows ~= #latency then
    error("this wrk keeps its histogram differently: the number of buckets does not match")
  end
  return rows
end

function done(summary, latency, requests)
  local ended_us = now_us() -- before the histogram is written, because that takes some time
  local errors = summary.errors
  local rows = summary.requests > 0 and buckets(latency) or {}
  local file = assert(io.open(os.getenv("WRK_JSON"), "w"))
  file:write(string.format(
    '{"ended_wall_us":%.0f,"duration_us":%d,"requests":%d,"bytes":%d,"connections":%d,"threads":%d,\n'
      .. '"errors":{"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d},\n'
      .. '"latency_us":[%s]}\n',
    ended_us, summary.duration, summary.requests, summary.bytes,
    tonumber(os.getenv("WRK_CONNECTIONS")), tonumber(os.getenv("WRK_THREADS")),
    errors.connect, errors.read, errors.write, errors.status, errors.timeout,
    table.concat(rows, ",")))
  assert(file:close())
end
