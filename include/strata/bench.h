// How fast a model runs here, each figure beside the time that no program could beat: the bytes
// that the work must read over the bandwidth of the machine, or its multiply-adds over their rate,
// whichever takes longer. Bytes are counted from the file, rates are measured in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "strata/engine.h"
#include "strata/result.h"

namespace strata {

// What the machine's memory and arithmetic reach on `threads` threads: the best of several passes.
struct MachineRates {
    int threads = 0;
    // A second, of a buffer far larger than any cache. On a GPU half of it is written: a copy.
    double read_bytes = 0;
    // Multiply-adds a second in registers, in the fastest instructions there are for products of
    // 8-bit numbers, of BF16 numbers, of F32 numbers. 0 where it is not measured: on a GPU.
    double i8_multiply_adds = 0;
    double bf16_multiply_adds = 0;
    double f32_multiply_adds = 0;
};

// `threads` 0: all cores. `small`: in a tenth of a second, for tests: the figures mean little.
// Error: not enough memory for the buffer.
Result<MachineRates> measure_machine(int threads, bool small = false);

// Of several repeats.
struct Spread {
    double median = 0;
    double least = 0;
    double most = 0;
};

// Bytes that must be read, each once: weights of the chosen experts, the output head, all other
// matrices and vectors, rows of the embedding and of the n-gram table, recurrent state (read and
// written), keys and values.
struct BytesRead {
    double experts = 0;
    double head = 0;
    double dense = 0;
    double rows = 0;
    double state = 0;

    double all() const { return experts + head + dense + rows + state; }
};

// One kind of work, done again and again.
struct WorkFigure {
    std::int64_t rows = 0;  // tokens that the work runs
    Spread ms;
    BytesRead bytes;
    double multiply_adds = 0;
    double experts_read = 0;  // different experts, the mean over layers and steps
    double bytes_ms = 0;      // the two floors
    double multiply_adds_ms = 0;
    std::uint64_t checksum = 0;  // of the logits' bits, the same in every repeat
    std::int32_t top_token = 0;  // the likeliest after the last row

    double floor_ms() const { return bytes_ms > multiply_adds_ms ? bytes_ms : multiply_adds_ms; }
    double reached() const { return ms.median > 0 ? floor_ms() / ms.median : 0; }
};

// Steps done and in all. False ends the work with an error.
using BenchProgress = std::function<bool(std::int64_t done, std::int64_t total)>;

inline constexpr std::int64_t kBenchRepeats = 5;
inline constexpr std::int64_t kBenchDepth = 256;
inline constexpr std::int64_t kBenchDecodeTokens = 32;
inline constexpr std::int64_t kBenchPromptTokens = 512;
inline constexpr std::int64_t kBenchDrafts = 64;

struct BenchOptions {
    EngineOptions model;
    std::int64_t repeats = kBenchRepeats;
    std::uint64_t seed = 1;  // of the tokens, drawn evenly from the vocabulary
    bool one_token = false;  // one drawn token again and again: rows that choose alike
    bool small = false;      // of measure_machine
};

struct DecodeBenchRequest : BenchOptions {
    std::int64_t depth = kBenchDepth;          // tokens before the first window
    std::int64_t tokens = kBenchDecodeTokens;  // that each repeat decodes at least
    std::vector<std::int64_t> windows = {1};   // rows of a verify window, 1 to kWindowMax
};

// Rows of an n-gram table that is read from its file, over all steps of a bench.
struct TableReads {
    bool mapped = true;  // it is not: the rest is 0
    std::int64_t hits = 0;
    std::int64_t misses = 0;
    double wait_ms = 0;  // a step, on average
};

struct DecodeBench {
    MachineRates machine;
    TableReads table;
    std::vector<WorkFigure> windows;  // one window's figures, as many as were asked for
};

// Windows of one size after another take turns in every repeat, so that what else the machine does
// meets all of them. A window ends with its logits in memory and its rows committed; nothing is
// sampled. Since a row does not depend on its window, windows of all sizes that divide `tokens`
// have one checksum. Errors: those of Engine::load, sizes out of range, a repeat that computed
// other logits than the one before.
Result<DecodeBench> bench_decode(const DecodeBenchRequest& request,
                                 const BenchProgress& progress = {});

struct PromptBenchRequest : BenchOptions {
    std::int64_t tokens = kBenchPromptTokens;
};

struct PromptBench {
    MachineRates machine;
    TableReads table;
    WorkFigure prompt;  // the whole of it
};

// An empty sequence reads a prompt; the work ends with the logits of the last token.
Result<PromptBench> bench_prompt(const PromptBenchRequest& request,
                                 const BenchProgress& progress = {});

struct DraftBenchRequest : BenchOptions {
    std::int64_t depth = kBenchDepth;         // tokens before the first draft
    std::int64_t drafts = kBenchDrafts;       // that each repeat makes
    std::vector<std::int64_t> guesses = {3};  // of a draft, 1 to kWindowMax - 1
};

// A draft after a context that has grown by one token: what it needs of that token is part of it.
struct DraftFigure {
    DraftKind kind = DraftKind::dflash;  // or mtp
    std::int64_t guesses = 0;
    Spread ms;
    BytesRead bytes;  // each once a draft, or once a guess of the MTP layer
    double floor_ms = 0;
    std::uint64_t checksum = 0;  // of the tokens guessed, the same in every repeat

    double reached() const { return ms.median > 0 ? floor_ms / ms.median : 0; }
};

struct DraftBench {
    MachineRates machine;
    // By guesses, of each the DFlash2 draft's, then the MTP layer's.
    std::vector<DraftFigure> drafts;
};

// Greedy drafts without a floor of the DFlash2 draft of `model.dflash` and of the MTP layer, of
// `model.mtp` or the model's own, those that there are. Errors: as for bench_decode; neither is
// there; more guesses than a block has.
Result<DraftBench> bench_draft(const DraftBenchRequest& request,
                               const BenchProgress& progress = {});

struct LoadBench {
    bool cold = false;      // the file was dropped from the page cache before each timing
    double in_cache = 0;    // else: the share of it that stayed there
    Spread read_ms;         // to read the file once, in order, on as many threads
    Spread ready_ms;        // to load the model
    Spread first_token_ms;  // from then to the first token after a prompt of one
    std::uint64_t file_bytes = 0;
    std::uint64_t state_bytes = 0;     // of a session of the whole context
    std::uint64_t resident_bytes = 0;  // of the process at its peak
    std::int32_t first_token = 0;
};

Result<LoadBench> bench_load(const BenchOptions& request, const BenchProgress& progress = {});

// A call of one op at the widths of Flash-Next, on the same memory again and again.
struct OpFigure {
    std::string name;
    std::int64_t rows = 0;
    Spread ms;
    double bytes = 0;  // that it must move
    double floor_ms = 0;
    std::uint64_t checksum = 0;  // of its output's bits

    double reached() const { return floor_ms / ms.median; }
};

struct OpBenchRequest {
    DeviceChoice device = {DeviceChoice::Kind::cpu};
    int threads = 0;     // 0: all cores
    std::string filter;  // a part of the names wanted
    std::int64_t repeats = kBenchRepeats;
    bool small = false;  // tiny sizes, for tests
};

struct OpBench {
    MachineRates machine;
    std::vector<OpFigure> ops;  // each for 1, 4 and 64 rows
};

// Weights that caches hold between calls can beat the floor. Says nothing of a whole step. Error:
// no op's name has the filter in it.
Result<OpBench> bench_ops(const OpBenchRequest& request, const BenchProgress& progress = {});

}  // namespace strata
