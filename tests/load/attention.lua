-- Posts attention requests with wrk. Closed loop: for latency use `load` or k6.
--   wrk -t2 -c16 -d10s --latency -s tests/load/attention.lua http://127.0.0.1:8080/attention
-- After `--`: length, width and heads, 64 256 4 unless given.

local function body(length, width, heads)
    local number = {}
    for i = 1, length * width do
        number[i] = string.format("%.5f", math.random() * 4 - 2)
    end
    return string.format(
        '{"num_heads": %d, "need_weights": false, "query": {"shape": [1, %d, %d], "data": [%s]}}',
        heads, length, width, table.concat(number, ","))
end

function init(args)
    math.randomseed(1)
    wrk.method = "POST"
    wrk.headers["Content-Type"] = "application/json"
    wrk.body = body(tonumber(args[1]) or 64, tonumber(args[2]) or 256, tonumber(args[3]) or 4)
end

local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

refused, wrong = 0, 0 -- global, so that done() can ask each thread

function response(status)
    if status == 503 or status == 429 then
        refused = refused + 1
    elseif status ~= 200 then
        wrong = wrong + 1
    end
end

function done()
    local all_refused, all_wrong = 0, 0
    for _, thread in ipairs(threads) do
        all_refused = all_refused + thread:get("refused")
        all_wrong = all_wrong + thread:get("wrong")
    end
    print(string.format("refused (503, 429): %d   other than 200: %d", all_refused, all_wrong))
end
