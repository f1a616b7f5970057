// strata bench: how fast a model runs, each figure beside the time that no program could beat.
#include "strata/bench.h"

#include <cmath>
#include <iomanip>
#include <sstream>

#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/watched.h"

namespace strata::cli {
namespace {

struct Bench {
    ModelOptions model;
    std::int64_t repeats = kBenchRepeats;
    std::optional<std::uint64_t> seed;
    bool one_token = false;
    bool small = false;
    bool json = false;
    std::int64_t depth = kBenchDepth;
    std::int64_t tokens = 0;
    std::optional<std::vector<std::int32_t>> windows;
    std::optional<std::vector<std::int32_t>> guesses;
    std::string mtp;
    std::string filter;
};

void fill(const Bench& from, BenchOptions& to) {
    to.model = engine_options(from.model);
    to.model.mtp = from.mtp;
    to.repeats = from.repeats;
    to.seed = from.seed.value_or(to.seed);
    to.one_token = from.one_token;
    to.small = from.small;
}

std::string fixed(double value, int digits) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << std::fixed << std::setprecision(digits) << value;
    return out.str();
}

std::string hex(std::uint64_t value) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    out << std::hex << std::setfill('0') << std::setw(16) << value;
    return out.str();
}

std::string text(const Spread& spread) {
    return concat(fixed(spread.median, 3), " ms (", fixed(spread.least, 3), " to ",
                  fixed(spread.most, 3), ")");
}

Json object(const Spread& spread) {
    return {{"median", spread.median}, {"least", spread.least}, {"most", spread.most}};
}

std::string text(const MachineRates& rates) {
    return concat("machine        ", rates.threads, " threads read ",
                  fixed(rates.read_bytes / 1e9, 2),
                  " GB/s; multiply-adds: ", fixed(rates.i8_multiply_adds / 1e9, 0),
                  " G/s of 8 bits, ", fixed(rates.bf16_multiply_adds / 1e9, 0), " of BF16, ",
                  fixed(rates.f32_multiply_adds / 1e9, 0), " of F32\n");
}

Json object(const MachineRates& rates) {
    return {{"threads", rates.threads},
            {"read_bytes_per_second", rates.read_bytes},
            {"i8_multiply_adds_per_second", rates.i8_multiply_adds},
            {"bf16_multiply_adds_per_second", rates.bf16_multiply_adds},
            {"f32_multiply_adds_per_second", rates.f32_multiply_adds}};
}

double tokens_per_second(const WorkFigure& figure) {
    return 1e3 * static_cast<double>(figure.rows) / figure.ms.median;
}

std::string text(const BytesRead& bytes) {
    return concat("  reads        ", fixed(bytes.all() / 1e6, 2), " MB: experts ",
                  fixed(bytes.experts / 1e6, 2), ", head ", fixed(bytes.head / 1e6, 2), ", dense ",
                  fixed(bytes.dense / 1e6, 2), ", rows ", fixed(bytes.rows / 1e6, 2), ", state ",
                  fixed(bytes.state / 1e6, 2), "\n");
}

std::string text(const WorkFigure& figure) {
    return concat("  time         ", text(figure.ms), ", ", fixed(tokens_per_second(figure), 2),
                  " tokens/s\n  floor        ", fixed(figure.floor_ms(), 3), " ms, ",
                  fixed(100 * figure.reached(), 1), " % reached (bytes ", fixed(figure.bytes_ms, 3),
                  " ms, multiply-adds ", fixed(figure.multiply_adds_ms, 3), " ms)\n",
                  text(figure.bytes), "  experts read ", fixed(figure.experts_read, 2),
                  " a layer\n  checksum     ", hex(figure.checksum), "\n");
}

Json object(const BytesRead& bytes) {
    return {{"all", bytes.all()},   {"experts", bytes.experts}, {"head", bytes.head},
            {"dense", bytes.dense}, {"rows", bytes.rows},       {"state", bytes.state}};
}

Json object(const WorkFigure& figure) {
    return {{"rows", figure.rows},
            {"ms", object(figure.ms)},
            {"tokens_per_second", tokens_per_second(figure)},
            {"floor_ms", figure.floor_ms()},
            {"reached", figure.reached()},
            {"bytes_floor_ms", figure.bytes_ms},
            {"multiply_adds_floor_ms", figure.multiply_adds_ms},
            {"bytes", object(figure.bytes)},
            {"multiply_adds", figure.multiply_adds},
            {"experts_read", figure.experts_read},
            {"checksum", hex(figure.checksum)},
            {"top_token", figure.top_token}};
}

std::string text(const TableReads& table) {
    if (table.mapped) return {};
    const auto all = static_cast<double>(table.hits + table.misses);
    const double cached = all > 0 ? 100 * static_cast<double>(table.hits) / all : 0;
    return concat("n-gram table   ", fixed(cached, 1), " % of ", table.hits + table.misses,
                  " rows cached, ", fixed(table.wait_ms, 3), " ms waited a step\n");
}

Json object(const TableReads& table) {
    return {{"mapped", table.mapped},
            {"hits", table.hits},
            {"misses", table.misses},
            {"wait_ms", table.wait_ms}};
}

Status run_decode(const Bench& options) {
    DecodeBenchRequest request;
    fill(options, request);
    request.depth = options.depth;
    request.tokens = options.tokens;
    if (options.windows) request.windows.assign(options.windows->begin(), options.windows->end());
    Watched watched("decode");
    STRATA_ASSIGN(const DecodeBench found, bench_decode(request, watched.callback()));
    if (options.json) {
        Json out = {{"bench", "decode"},
                    {"machine", object(found.machine)},
                    {"depth", request.depth},
                    {"repeats", request.repeats},
                    {"ngram_table", object(found.table)},
                    {"windows", Json::array()}};
        for (const WorkFigure& window : found.windows) out["windows"].push_back(object(window));
        return print(json_line(out));
    }
    std::string out = text(found.machine) + text(found.table);
    for (const WorkFigure& window : found.windows) {
        out += concat("window of ", window.rows, " after ", request.depth, " tokens and more\n",
                      text(window));
    }
    return print(out);
}

Status run_prompt(const Bench& options) {
    PromptBenchRequest request;
    fill(options, request);
    request.tokens = options.tokens;
    Watched watched("prompt");
    STRATA_ASSIGN(const PromptBench found, bench_prompt(request, watched.callback()));
    if (!options.json) {
        return print(concat(text(found.machine), text(found.table), "prompt of ", found.prompt.rows,
                            " tokens, ", request.model.chunk, " at a time\n", text(found.prompt)));
    }
    return print(json_line(Json{{"bench", "prompt"},
                                {"machine", object(found.machine)},
                                {"chunk", request.model.chunk},
                                {"repeats", request.repeats},
                                {"ngram_table", object(found.table)},
                                {"prompt", object(found.prompt)}}));
}

std::string_view name_of(DraftKind kind) { return kind == DraftKind::mtp ? "mtp" : "dflash"; }

std::string text(const DraftFigure& figure) {
    return concat(name_of(figure.kind), ", ", figure.guesses, " guesses\n  time         ",
                  text(figure.ms), "\n  floor        ", fixed(figure.floor_ms, 3), " ms, ",
                  fixed(100 * figure.reached(), 1), " % reached\n", text(figure.bytes),
                  "  checksum     ", hex(figure.checksum), "\n");
}

Json object(const DraftFigure& figure) {
    return {{"draft", name_of(figure.kind)},   {"guesses", figure.guesses},
            {"ms", object(figure.ms)},         {"floor_ms", figure.floor_ms},
            {"reached", figure.reached()},     {"bytes", object(figure.bytes)},
            {"checksum", hex(figure.checksum)}};
}

Status run_draft(const Bench& options) {
    DraftBenchRequest request;
    fill(options, request);
    request.depth = options.depth;
    request.drafts = options.tokens;
    if (options.guesses) request.guesses.assign(options.guesses->begin(), options.guesses->end());
    Watched watched("draft");
    STRATA_ASSIGN(const DraftBench found, bench_draft(request, watched.callback()));
    if (!options.json) {
        std::string out = text(found.machine);
        for (const DraftFigure& figure : found.drafts) out += text(figure);
        return print(out);
    }
    Json out = {{"bench", "draft"},
                {"machine", object(found.machine)},
                {"depth", request.depth},
                {"repeats", request.repeats},
                {"drafts", Json::array()}};
    for (const DraftFigure& figure : found.drafts) out["drafts"].push_back(object(figure));
    return print(json_line(out));
}

std::string text(const LoadBench& found) {
    const std::string state =
        found.cold ? std::string("cold: not in the page cache")
                   : concat("warm: ", fixed(100 * found.in_cache, 1),
                            " % of it stayed in the page cache, so that the disk is not measured");
    return concat("file            ", fixed(static_cast<double>(found.file_bytes) / 1e6, 2),
                  " MB, ", state, "\nplain read      ", text(found.read_ms), "\nready           ",
                  text(found.ready_ms), "\nfirst token     ", text(found.first_token_ms),
                  " more, token ", found.first_token, "\npeak resident   ",
                  fixed(static_cast<double>(found.resident_bytes) / 1e6, 2),
                  " MB; a session's state, full, ",
                  fixed(static_cast<double>(found.state_bytes) / 1e6, 2), " MB\n");
}

Status run_load(const Bench& options) {
    BenchOptions request;
    fill(options, request);
    Watched watched("load");
    STRATA_ASSIGN(const LoadBench found, bench_load(request, watched.callback()));
    if (!options.json) return print(text(found));
    return print(json_line(Json{{"bench", "load"},
                                {"repeats", request.repeats},
                                {"cold", found.cold},
                                {"in_page_cache", found.in_cache},
                                {"read_ms", object(found.read_ms)},
                                {"ready_ms", object(found.ready_ms)},
                                {"first_token_ms", object(found.first_token_ms)},
                                {"file_bytes", found.file_bytes},
                                {"state_bytes", found.state_bytes},
                                {"peak_resident_bytes", found.resident_bytes},
                                {"first_token", found.first_token}}));
}

std::string text(const OpFigure& figure) {
    return concat(figure.name, "/", figure.rows, ": ", text(figure.ms), ", ",
                  fixed(figure.bytes / 1e6, 2), " MB, floor ", fixed(figure.floor_ms, 3), " ms, ",
                  fixed(100 * figure.reached(), 1), " % reached, checksum ", hex(figure.checksum),
                  "\n");
}

Json object(const OpFigure& figure) {
    return {{"op", figure.name},
            {"rows", figure.rows},
            {"ms", object(figure.ms)},
            {"bytes", figure.bytes},
            {"floor_ms", figure.floor_ms},
            {"reached", figure.reached()},
            {"checksum", hex(figure.checksum)}};
}

Status run_ops(const Bench& options) {
    OpBenchRequest request;
    request.device = options.model.device;
    request.threads = static_cast<int>(options.model.threads);
    request.filter = options.filter;
    request.repeats = options.repeats;
    request.small = options.small;
    Watched watched("op");
    STRATA_ASSIGN(const OpBench found, bench_ops(request, watched.callback()));
    if (options.json) {
        Json out = {{"bench", "op"}, {"machine", object(found.machine)}, {"ops", Json::array()}};
        for (const OpFigure& figure : found.ops) out["ops"].push_back(object(figure));
        return print(json_line(out));
    }
    std::string out = text(found.machine);
    for (const OpFigure& figure : found.ops) out += text(figure);
    return print(out);
}

void add_common(Options& options, Bench* to) {
    options.integer("--repeats", {1, 100000}, &to->repeats,
                    concat("Timed runs, of which the median and the range are shown (default: ",
                           to->repeats, ")"));
    options.seed("--seed", &to->seed, "Of the tokens, which are drawn at random (default: 1)");
    add_computing_options(options, &to->model);
    options.flag("--json", &to->json, "Print one JSON object instead of a table");
}

void add_work(Options& options, Bench* to, const std::string& name, std::int64_t count,
              const std::string& help) {
    add_model_option(options, &to->model);
    to->tokens = count;
    options.integer(name, {1, INT32_MAX}, &to->tokens, concat(help, " (default: ", count, ")"));
    options.flag("--one-token", &to->one_token,
                 "One drawn token again and again, so that rows choose much the same experts");
    options.flag("--small", &to->small,
                 "Measure the machine in a moment: for tests, the floors mean little");
    add_common(options, to);
}

Run add_decode(Options& options) {
    const auto to = std::make_shared<Bench>();
    add_work(options, to.get(), "-n,--tokens", kBenchDecodeTokens,
             "Tokens that each repeat decodes at least");
    options.integer("--depth", {0, INT32_MAX}, &to->depth,
                    concat("Tokens before the first window (default: ", to->depth, ")"));
    options.list("--rows", "window size", &to->windows,
                 concat("Rows of a verify window, 1 to ", kWindowMax,
                        "; of several sizes (1,4) the windows take turns (default: 1)"));
    options.check([to]() -> Status {
        for (const std::int32_t rows : to->windows.value_or(std::vector<std::int32_t>())) {
            if (rows >= 1 && rows <= kWindowMax) continue;
            return STRATA_ERROR("--rows has a window of ", rows, " rows, and 1 to ", kWindowMax,
                                " is wanted");
        }
        return Ok{};
    });
    return [to] { return run_decode(*to); };
}

Run add_prompt(Options& options) {
    const auto to = std::make_shared<Bench>();
    add_work(options, to.get(), "-n,--tokens", kBenchPromptTokens, "Tokens of the prompt");
    return [to] { return run_prompt(*to); };
}

Run add_draft_bench(Options& options) {
    const auto to = std::make_shared<Bench>();
    add_work(options, to.get(), "-n,--drafts", kBenchDrafts, "Drafts of each repeat");
    options.text("--dflash", "FILE", &to->model.dflash, "A DFlash2 draft for this model");
    options.text("--mtp", "FILE", &to->mtp,
                 "The MTP layer in a file of its own (default: the model's own, if it has one)");
    options.integer("--depth", {1, INT32_MAX}, &to->depth,
                    concat("Tokens before the first draft (default: ", to->depth, ")"));
    options.list("--guesses", "number", &to->guesses,
                 concat("Guesses of a draft, 1 to ", kWindowMax - 1,
                        "; of several (3,7) drafts take turns (default: 3)"));
    options.check([to]() -> Status {
        for (const std::int32_t guesses : to->guesses.value_or(std::vector<std::int32_t>())) {
            if (guesses >= 1 && guesses < kWindowMax) continue;
            return STRATA_ERROR("--guesses has ", guesses, ", and 1 to ", kWindowMax - 1,
                                " is wanted");
        }
        return Ok{};
    });
    return [to] { return run_draft(*to); };
}

Run add_load(Options& options) {
    const auto to = std::make_shared<Bench>();
    add_model_options(options, &to->model);
    options.integer("--repeats", {1, 100000}, &to->repeats,
                    concat("Timed loads (default: ", to->repeats, ")"));
    options.flag("--json", &to->json, "Print one JSON object instead of a table");
    return [to] { return run_load(*to); };
}

Run add_op(Options& options) {
    const auto to = std::make_shared<Bench>();
    options.text("--filter", "TEXT", &to->filter, "Only ops with this in their name");
    add_device_option(options, &to->model);
    options.integer("-t,--threads", {1, kThreadsMax}, &to->model.threads,
                    "Threads to compute with (default: all cores that the process may use)");
    options.integer("--repeats", {1, 100000}, &to->repeats,
                    concat("Timed runs of many calls (default: ", to->repeats, ")"));
    options.flag("--small", &to->small, "Tiny sizes: for tests");
    options.flag("--json", &to->json, "Print one JSON object instead of a table");
    return [to] { return run_ops(*to); };
}

}  // namespace

Run add_bench(Options& options) {
    return options.commands({{"decode", "Time verify windows after a context", add_decode},
                             {"prompt", "Time the reading of a prompt", add_prompt},
                             {"draft", "Time what drafters take to guess", add_draft_bench},
                             {"op", "Time single ops at the widths of Flash-Next", add_op},
                             {"load", "Time from a file to the first token", add_load}});
}

}  // namespace strata::cli
