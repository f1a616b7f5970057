#include "strata/engine.h"

#include <algorithm>
#include <utility>

#include "backend/choose.h"
#include "base/text.h"
#include "engine/fit.h"
#include "engine/model_text.h"
#include "engine/parts.h"
#include "engine/unused_drafts.h"
#include "spec/dflash/config.h"
#include "tokenizer/stream.h"

namespace strata {
namespace {

static_assert(kWindowMax == model::kWindowRowsMax);
static_assert(kNgramMappedBytes == model::kNgramMappedBytes);
static_assert(kNgramCacheBytes == model::kNgramCacheBytes);

Status check_options(const EngineOptions& options) {
    if (options.chunk < 1 || options.chunk > kChunkRowsMax) {
        return STRATA_ERROR("the chunk is ", options.chunk, " tokens, wanted 1 to ", kChunkRowsMax);
    }
    if (options.ngram_cache.value_or(0) < 0) {
        return STRATA_ERROR("the cache of n-gram rows is ", *options.ngram_cache,
                            " bytes, wanted at least 0");
    }
    for (const auto& [what, bytes] :
         {std::pair("the host's memory is to be", options.ram),
          std::pair("the GPU's memory is to be", options.vram),
          std::pair("the checkpoints are to be", options.checkpoints)}) {
        if (bytes.value_or(0) < 0) {
            return STRATA_ERROR(what, " at most ", *bytes, " bytes, wanted at least 0");
        }
    }
    if (options.context < 0) {
        return STRATA_ERROR("the context is ", options.context,
                            " tokens, wanted at least 1, or 0 for the trained length");
    }
    return Ok{};
}

std::string model_name(const gguf::File& file) {
    const gguf::Value* name = file.find("general.name");
    const auto text = name == nullptr ? std::nullopt : name->as_string();
    return text ? std::string(*text) : std::string("unnamed");
}

Result<ModelInfo> describe(const model::Target& target) {
    const model::Config& config = target.config();
    ModelInfo info;
    info.name = model_name(target.file());
    info.layers = config.layers;
    info.hidden = config.hidden;
    info.vocabulary = config.vocabulary;
    info.trained_context = config.context;
    info.has_mtp = config.mtp_layers > 0;
    info.file_bytes = target.file().total_bytes();
    STRATA_ASSIGN(info.end_tokens, end_tokens_of(target.file(), config.vocabulary));
    STRATA_ASSIGN(info.sampling, sampling_of(target.file()));
    return info;
}

}  // namespace

std::vector<std::int64_t> default_feature_layers(std::int64_t layers) {
    return dflash::spread_layers(layers);
}

model::SequenceOptions Engine::Parts::sequence_options(std::int64_t tokens, bool mtp) const {
    return {tokens, cache_type(options.cache), mtp};
}

op::DeltaForm Engine::Parts::prompt_form() const {
    return options.prompt_form == PromptForm::chunked ? op::DeltaForm::chunked
                                                      : op::DeltaForm::recurrent;
}

bool Engine::Parts::is_end_token(std::int32_t token) const {
    return std::binary_search(info.end_tokens.begin(), info.end_tokens.end(), token);
}

Status Engine::Parts::read_prompt(model::Sequence& sequence, std::span<const std::int32_t> tokens,
                                  spec::Follower* follower, std::vector<float>* logits,
                                  const std::function<void()>& between) {
    const std::int64_t end = sequence.length() + static_cast<std::int64_t>(tokens.size());
    while (!tokens.empty()) {
        const std::int64_t first = sequence.length();
        const auto rows = std::min(options.chunk - first % options.chunk, end - first);
        model::StepRequest request;
        request.tokens = tokens.first(static_cast<std::size_t>(rows));
        request.form = prompt_form();
        tokens = tokens.subspan(static_cast<std::size_t>(rows));
        const bool wanted = logits != nullptr && tokens.empty();
        request.logits = wanted ? model::LogitRows::last : model::LogitRows::none;
        if (follower != nullptr) follower->want({first, rows, end}, request);
        STRATA_ASSIGN(const model::StepResult result, target->step(sequence, request));
        if (wanted) {
            logits->assign(result.logits.data, result.logits.data + result.logits.size());
        }
        if (follower != nullptr) {
            if (Status kept = follower->keep(first, request.tokens, result); !kept.ok()) {
                target->drop(sequence);
                return kept;
            }
        }
        target->commit(sequence, rows);
        if (between && !tokens.empty()) between();
    }
    return Ok{};
}

Status Engine::Parts::open_dump() {
    DumpOptions& wanted = options.dump;
    if (wanted.prefix.empty()) return Ok{};
    if (dflash != nullptr) {
        const auto& taps = dflash->config().target_layers;
        if (!wanted.layers.empty() && wanted.layers != taps) {
            return STRATA_ERROR("other layers than those that ", quote(options.dflash),
                                " reads were asked for, and beside a draft its own are dumped");
        }
        wanted.layers = taps;
    }
    if (wanted.layers.empty()) wanted.layers = default_feature_layers(info.layers);
    for (std::size_t i = 0; i < wanted.layers.size(); ++i) {
        const std::int64_t layer = wanted.layers[i];
        if (layer < 0 || layer >= info.layers || (i > 0 && layer <= wanted.layers[i - 1])) {
            return STRATA_ERROR("layer ", layer,
                                " is to be dumped, wanted ascending layers of 0 "
                                "to ",
                                info.layers - 1);
        }
    }
    STRATA_ASSIGN(dump, FeatureDump::open(wanted, target->config(), info.name));
    return Ok{};
}

Result<std::unique_ptr<Engine>> Engine::load(const EngineOptions& options) {
    const auto start = std::chrono::steady_clock::now();
    STRATA_TRY(check_options(options));
    auto parts = std::make_unique<Parts>();
    parts->options = options;
    STRATA_ASSIGN(gguf::File file, gguf::File::open(options.model));
    std::optional<gguf::File> mtp;
    if (!options.mtp.empty()) {
        STRATA_ASSIGN(mtp, gguf::File::open(options.mtp));
    }
    std::optional<gguf::File> draft;
    if (!options.dflash.empty()) {
        STRATA_ASSIGN(draft, gguf::File::open(options.dflash));
    }
    STRATA_TRY(check_unused_drafts(options, file));
    const EngineFiles files{&file, mtp ? &*mtp : nullptr, draft ? &*draft : nullptr};
    model::Fit fit;
    STRATA_ASSIGN(
        ChosenBackend chosen,
        choose_backend(options.device, options.threads, [&](std::uint64_t device) -> Status {
            STRATA_ASSIGN(fit, fit_engine(options, files, device));
            return Ok{};
        }));
    if (!chosen.gpu) {
        STRATA_ASSIGN(fit, fit_engine(options, files, std::nullopt));
    }
    parts->backend = std::move(chosen.backend);
    STRATA_ASSIGN(parts->target,
                  model::Target::load(std::move(file), *parts->backend.device, parts->backend.ops,
                                      std::max(options.chunk, model::kWindowRowsMax),
                                      {.cache_bytes = options.ngram_cache}, std::move(mtp)));
    if (parts->target->mtp_file() != nullptr) {
        STRATA_TRY(check_tokenizer(*parts->target->mtp_file(), parts->target->file()));
    }
    if (draft) {
        STRATA_ASSIGN(parts->dflash, dflash::BlockModel::load(
                                         *std::move(draft), *parts->target, *parts->backend.device,
                                         parts->backend.ops, parts->target->rows_max()));
        STRATA_TRY(check_tokenizer(parts->dflash->file(), parts->target->file()));
    }
    STRATA_ASSIGN(parts->info, describe(*parts->target));
    parts->info.file = options.model;
    parts->info.device = parts->backend.device->name();
    parts->info.device_note = std::move(chosen.note);
    if (!chosen.gpu && options.vram && parts->info.device_note.empty()) {
        parts->info.device_note = "the limit on a GPU's memory limits nothing here";
    }
    STRATA_ASSIGN(parts->tokenizer, tokenizer_of(parts->target->file(), parts->info.vocabulary));
    parts->info.has_tokenizer = parts->tokenizer.has_value();
    parts->context = parts->info.context = fit.context;
    parts->info.context_note = std::move(fit.note);
    parts->info.memory = memory_use(fit.plan);
    parts->checkpoints = Checkpoints(fit.plan.checkpoints);
    STRATA_TRY(parts->open_dump());
    parts->load_ms = milliseconds_since(start);
    return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

Engine::Engine(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

const ModelInfo& Engine::info() const { return parts_->info; }

Status Engine::status() const { return parts_->target->status(); }

namespace {

Error no_tokenizer(const EngineOptions& options) {
    return STRATA_ERROR(quote(options.model), " has no tokenizer, wanted one to read text");
}

}  // namespace

Result<std::vector<std::int32_t>> Engine::tokenize(std::string_view text) const {
    if (!parts_->tokenizer) return no_tokenizer(parts_->options);
    return parts_->tokenizer->encode(text);
}

Result<std::vector<std::int32_t>> Engine::tokenize_with_special(std::string_view text) const {
    if (!parts_->tokenizer) return no_tokenizer(parts_->options);
    return parts_->tokenizer->encode_with_special(text);
}

std::string Engine::detokenize(std::span<const std::int32_t> tokens) const {
    return parts_->tokenizer ? to_utf8(parts_->tokenizer->decode(tokens)) : std::string();
}

Result<std::vector<std::int32_t>> Engine::chat_prompt(std::span<const Message> messages,
                                                      bool thinking) const {
    if (!parts_->tokenizer) return no_tokenizer(parts_->options);
    return strata::chat_prompt(*parts_->tokenizer, messages, thinking);
}

Result<std::vector<std::int32_t>> Engine::chat_turn(std::string_view text, bool thinking,
                                                    bool answer_ended) const {
    if (!parts_->tokenizer) return no_tokenizer(parts_->options);
    return strata::chat_turn(*parts_->tokenizer, text, thinking, answer_ended);
}

Result<Session> Engine::make_session(std::int64_t tokens, const Drafting& drafting) {
    STRATA_TRY(parts_->check_drafting(drafting));
    const std::int64_t room = tokens == 0 ? parts_->context : std::min(tokens, parts_->context);
    const bool mtp = parts_->drafts_mtp(drafting);
    STRATA_ASSIGN(model::Sequence sequence,
                  parts_->target->make_sequence(parts_->sequence_options(room, mtp)));
    auto state = std::make_unique<Session::State>(*parts_, std::move(sequence), drafting);
    STRATA_TRY(state->make_drafter());
    return Session(std::move(state));
}

}  // namespace strata
