#include "cli/model_options.h"

#include "base/text.h"
#include "base/thread_pool.h"

namespace strata::cli {

void add_model_option(Options& options, ModelOptions* to) {
    options
        .text("-m,--model", "FILE", &to->model,
              "The model: a GGUF file, a part of a split set, or a folder that holds one")
        .required();
}

void add_computing_options(Options& options, ModelOptions* to) {
    options.integer("-t,--threads", {1, kThreadsMax}, &to->threads,
                    "Threads to compute with; the output does not depend on it (default: all "
                    "cores that the process may use)");
    options.integer("--chunk", {1, kChunkRowsMax}, &to->chunk,
                    concat("Prompt tokens read at a time, 1 to ", kChunkRowsMax,
                           " (default: ", to->chunk, ")"));
    options.choice("--kv", {"f16", "f32"}, &to->cache,
                   "Numbers that keys and values are kept in (default: f16)");
    options.integer(
        "--ngram-cache", {0, INT64_MAX}, &to->ngram_cache,
        "Bytes of n-gram table rows to keep, the table being read from its file; 0: the "
        "table is mapped whole (default: 0 for tables of up to 4 GiB, else 64 MiB)");
    options.choice("--prompt-form", {"recurrent", "chunked"}, &to->prompt_form,
                   "How delta nets read a prompt: recurrent gives the same bits however the prompt "
                   "is cut, chunked differs from it by rounding (default: recurrent)");
}

void add_model_options(Options& options, ModelOptions* to) {
    add_model_option(options, to);
    options.integer("-c,--context", {1, INT32_MAX}, &to->context,
                    "Tokens that a sequence may reach (default: the trained length)");
    add_computing_options(options, to);
}

EngineOptions engine_options(const ModelOptions& options) {
    EngineOptions engine;
    engine.model = options.model;
    engine.dflash = options.dflash;
    engine.threads = static_cast<int>(options.threads);
    engine.context = options.context;
    engine.chunk = options.chunk;
    engine.ngram_cache = options.ngram_cache;
    engine.cache = options.cache == 0 ? CacheKind::f16 : CacheKind::f32;
    engine.prompt_form = options.prompt_form == 0 ? PromptForm::recurrent : PromptForm::chunked;
    return engine;
}

Result<std::unique_ptr<Engine>> load(const ModelOptions& options) {
    return Engine::load(engine_options(options));
}

}  // namespace strata::cli
