#include "cli/model_options.h"

#include "base/text.h"
#include "base/thread_pool.h"
#include "cli/output.h"

namespace strata::cli {

void add_model_option(Options& options, ModelOptions* to) {
    options
        .text("-m,--model", "FILE", &to->model,
              "The model: a GGUF file, a part of a split set, or a folder that holds one")
        .required();
}

Status read_device(const std::string& text, DeviceChoice& device) {
    if (text == "auto" || text == "cpu") {
        device.kind = text == "cpu" ? DeviceChoice::Kind::cpu : DeviceChoice::Kind::best;
        return Ok{};
    }
    if (text != "cuda" && !text.starts_with("cuda:")) {
        return STRATA_ERROR(quote(text), " is none of auto, cpu, cuda, cuda:N");
    }
    device.kind = DeviceChoice::Kind::cuda;
    if (text == "cuda") return Ok{};
    STRATA_ASSIGN(const std::int64_t number, parse_integer(text.substr(5), {0, kDeviceNumberMax}));
    device.number = static_cast<int>(number);
    return Ok{};
}

void add_device_option(Options& options, ModelOptions* to) {
    options.parsed(
        "--device", "auto|cpu|cuda|cuda:N",
        [to](const std::string& text) { return read_device(text, to->device); },
        "What to compute on: a CUDA device of this number, the CPU, or the first CUDA "
        "device if there is one and the model fits there (default: auto)");
}

void add_computing_options(Options& options, ModelOptions* to) {
    add_device_option(options, to);
    options.integer("-t,--threads", {1, kThreadsMax}, &to->threads,
                    "Threads to compute with; the output does not depend on it (default: all "
                    "cores that the process may use)");
    options.integer("--chunk", {1, kChunkRowsMax}, &to->chunk,
                    concat("Prompt tokens read at a time, 1 to ", kChunkRowsMax,
                           " (default: ", to->chunk, ")"));
    options.choice("--kv", kCacheNames, &to->cache,
                   "Numbers that keys and values are kept in; q8_0: 8 bits with a scale for every "
                   "32, half the memory of f16 (default: f16)");
    options.integer("--ram", {0, INT64_MAX}, &to->ram,
                    "Bytes of the machine's memory to stay within (default: all that is free)");
    options.integer(
        "--vram", {0, INT64_MAX}, &to->vram,
        "Bytes of the GPU's memory to stay within, where the model runs on one (default: "
        "all that is free)");
    options.integer(
        "--ngram-cache", {0, INT64_MAX}, &to->ngram_cache,
        "Bytes of n-gram table rows to keep, the table being read from its file; 0: the "
        "table is mapped whole (default: 0 for tables of up to 4 GiB, else 64 MiB)");
    options.choice("--prompt-form", kPromptFormNames, &to->prompt_form,
                   "How delta nets read a prompt: recurrent gives the same bits however the prompt "
                   "is cut, chunked differs from it by rounding (default: recurrent)");
}

void add_model_options(Options& options, ModelOptions* to) {
    add_model_option(options, to);
    options.integer("-c,--context", {1, INT32_MAX}, &to->context,
                    "Tokens that a sequence may reach (default: the trained length, or what fits)");
    add_computing_options(options, to);
}

EngineOptions engine_options(const ModelOptions& options) {
    EngineOptions engine;
    engine.model = options.model;
    engine.dflash = options.dflash;
    engine.device = options.device;
    engine.threads = static_cast<int>(options.threads);
    engine.context = options.context;
    engine.chunk = options.chunk;
    engine.ram = options.ram;
    engine.vram = options.vram;
    engine.checkpoints = options.checkpoints;
    engine.ngram_cache = options.ngram_cache;
    engine.cache = static_cast<CacheKind>(options.cache);
    engine.prompt_form = static_cast<PromptForm>(options.prompt_form);
    return engine;
}

Result<std::unique_ptr<Engine>> load(const EngineOptions& options) {
    STRATA_ASSIGN(auto engine, Engine::load(options));
    const ModelInfo& info = engine->info();
    if (!info.device_note.empty()) {
        warn(concat("on the ", info.device, ", not a GPU: ", info.device_note, "\n"));
    }
    if (!info.context_note.empty()) warn(concat(info.context_note, "\n"));
    return engine;
}

Result<std::unique_ptr<Engine>> load(const ModelOptions& options) {
    return load(engine_options(options));
}

}  // namespace strata::cli
