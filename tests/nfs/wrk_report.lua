-- The last line of wrk's output: requests, and failures by kind.
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests": %d, "connect": %d, "read": %d, "write": %d, "timeout": %d, "status": %d}\n',
    summary.requests, e.connect, e.read, e.write, e.timeout, e.status))
end
