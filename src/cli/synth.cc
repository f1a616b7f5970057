// strata synth: a model of random weights.
#include "strata/synth.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/type_options.h"
#include "cli/watched.h"

namespace strata::cli {
namespace {

constexpr IntegerRange kSizes = {1, INT32_MAX};
const std::vector<std::string> kPresets = {"flash-next", "tiny"};

struct Synth {
    SynthRequest request;
    std::size_t preset = 0;  // of kPresets
    std::optional<std::uint64_t> seed;
};

Status run(Synth& options) {
    SynthRequest& request = options.request;
    request.seed = options.seed.value_or(request.seed);
    Watched watched("synth");
    return synthesize_model(request, watched.callback());
}

void add_sizes(Options& options, SynthRequest* to) {
    options.integer("--layers", kSizes, &to->layers, "Layers; every fourth attends");
    options.integer("--hidden", kSizes, &to->hidden, "Values of the residual");
    options.integer("--vocab", kSizes, &to->vocabulary, "Tokens");
    options.integer("--context", kSizes, &to->context, "Tokens of the trained length");
    options.integer("--heads", kSizes, &to->heads, "Heads of sparse attention");
    options.integer("--kv-heads", kSizes, &to->kv_heads, "Of keys and values");
    options.integer("--head-dim", kSizes, &to->head_dim, "Values of such a head");
    options.integer("--delta-key-heads", kSizes, &to->delta_key_heads, "Key heads of delta nets");
    options.integer("--delta-value-heads", kSizes, &to->delta_value_heads,
                    "Value heads of delta nets");
    options.integer("--experts", kSizes, &to->experts, "Routed experts of a layer");
    options.integer("--experts-active", kSizes, &to->experts_active, "Of these, for a token");
    options.integer("--expert-hidden", kSizes, &to->expert_hidden, "Values inside an expert");
    options.integer("--shared-hidden", kSizes, &to->shared_hidden,
                    "Values inside the shared expert");
    options.integer("--stream-rank", kSizes, &to->stream_rank, "Rank of the hyper-connections");
    options.integer("--index-budget", kSizes, &to->index_budget,
                    "Rows that sparse attention keeps");
    options.integer("--table-rows", {1, INT64_MAX}, &to->table_rows,
                    "Rows that each head of the n-gram table has at least (default: the preset's, "
                    "scaled as the vocabulary is)");
}

}  // namespace

Run add_synth(Options& options) {
    const auto to = std::make_shared<Synth>();
    options
        .text("OUT", "OUT", &to->request.output,
              "Where to write; whole or not at all, in place of a file of this name")
        .required();
    options
        .choice("--preset", kPresets, &to->preset,
                "The geometry, of which the options below change single sizes: flash-next is the "
                "full model, tiny has every part at sizes for tests")
        .required();
    add_sizes(options, &to->request);
    options.flag("--mtp", &to->request.mtp, "With an MTP layer");
    options.text("--dflash", "OUT2", &to->request.dflash,
                 "Write a DFlash2 draft for the model here too, of the preset's geometry, its "
                 "matrices of --dense, or else --type");
    add_type_options(options, &to->request, false);
    options.seed("--seed", &to->seed, "Of the values (default: 1)");
    return [to] {
        to->request.preset = kPresets[to->preset];
        return run(*to);
    };
}

}  // namespace strata::cli
