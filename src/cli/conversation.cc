#include "cli/conversation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "cli/format_options.h"

namespace strata::cli {

Result<Conversation> Conversation::start(Engine& engine, ConversationOptions options) {
    STRATA_ASSIGN(Session session, engine.make_session(0, options.drafting));
    return Conversation(engine, std::move(options), std::move(session));
}

void Conversation::clear() {
    tokens_.clear();
    turns_.clear();
    answer_ended_ = false;
}

void Conversation::undo() {
    STRATA_CHECK(begun());
    tokens_.resize(turns_.back().tokens);
    answer_ended_ = turns_.back().answer_ended;
    turns_.pop_back();
}

Status Conversation::retry(const TextSink& sink) {
    STRATA_CHECK(begun());
    const Turn last = turns_.back();
    const std::vector<std::int32_t> tokens = tokens_;
    const bool answer_ended = answer_ended_;
    undo();
    ++options_.sampling.seed;
    Status answered = ask(last.text, sink);
    if (tokens_.size() == last.tokens) {  // nothing was answered
        tokens_ = tokens;
        turns_.push_back(last);
        answer_ended_ = answer_ended;
    }
    return answered;
}

Result<std::vector<std::int32_t>> Conversation::turn(const std::string& text) const {
    if (!tokens_.empty()) return engine_->chat_turn(text, options_.thinking, answer_ended_);
    std::vector<Message> messages;
    if (options_.system) messages.push_back({"system", *options_.system});
    messages.push_back({"user", text});
    return engine_->chat_prompt(messages, options_.thinking);
}

std::string Conversation::remedy() const {
    const ModelInfo& info = engine_->info();
    const bool may_grow = info.context < info.trained_context;
    if (options_.one_question || tokens_.empty()) {  // nothing that /clear would forget
        return may_grow ? "a larger --context is wanted"
                        : "that is all that the model was trained for";
    }
    return may_grow ? "/clear or a larger --context is wanted" : "/clear is wanted";
}

Status Conversation::ask(const std::string& text, const TextSink& sink) {
    answering_ = false;
    cut_note_.clear();
    STRATA_ASSIGN(const auto added, turn(text));
    GenerateRequest request;
    request.prompt = tokens_;
    request.prompt.insert(request.prompt.end(), added.begin(), added.end());
    const std::int64_t context = engine_->info().context;
    refused_ = std::ssize(request.prompt) > context;
    if (refused_) {
        return STRATA_ERROR("with this question the conversation has ", request.prompt.size(),
                            " tokens, more than the context of ", context, ": ", remedy());
    }
    request.max_tokens = options_.max_tokens;
    request.sampling = options_.sampling;
    request.format = options_.format;
    STRATA_ASSIGN(const Completion completion,
                  session_.generate(request, [&](std::string_view piece) {
                      answering_ = true;
                      return sink(piece);
                  }));
    cut_note_ = cli::cut_note(completion, options_.max_tokens);
    turns_.push_back({text, tokens_.size(), answer_ended_});
    tokens_ = std::move(request.prompt);
    tokens_.insert(tokens_.end(), completion.tokens.begin(), completion.tokens.end());
    const auto& ends = engine_->info().end_tokens;
    answer_ended_ = !completion.tokens.empty() &&
                    std::ranges::find(ends, completion.tokens.back()) != ends.end();
    const auto count = static_cast<std::int64_t>(completion.tokens.size());
    if (completion.finish == Finish::length && count != options_.max_tokens) {
        // The last token needs no room: nothing was run after it.
        return STRATA_ERROR("the context is full: it holds ", tokens_.size() - 1, " tokens, and ",
                            remedy());
    }
    return Ok{};
}

}  // namespace strata::cli
