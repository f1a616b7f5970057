// A conversation with the model: turns in its chat form over one session.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/engine.h"

namespace strata::cli {

struct ConversationOptions {
    std::optional<std::string> system;
    bool thinking = false;
    std::int64_t max_tokens = -1;  // of an answer; -1: until the context is full
    Sampling sampling;
    ResponseFormat format = ResponseFormat::text;  // of each answer
    Drafting drafting;
    bool one_question = false;  // there is no turn after it
};

// Outlived by its engine.
class Conversation {
  public:
    static Result<Conversation> start(Engine& engine, ConversationOptions options);

    // Answers; what was said before, cancelled answers included, stays part of the conversation.
    // After an error the conversation is as it was. Errors: the turn does not fit the context; the
    // answer filled it, in which case it stays.
    Status ask(const std::string& text, const TextSink& sink);

    // Whether the last ask() handed out any text.
    bool answering() const { return answering_; }

    // Of the last answer (format_options.h).
    const std::string& cut_note() const { return cut_note_; }

    // Error: no turn can be answered any more.
    Status status() const { return engine_->status(); }

    // Whether the last ask() was of a turn that does not fit the context.
    bool refused() const { return refused_; }

    // Forgets everything but the system message.
    void clear();

    // Whether there is a turn that undo() takes back, question and answer, and to whose question
    // retry() writes another answer, with other draws. Errors of retry() as of ask().
    bool begun() const { return !turns_.empty(); }
    void undo();
    Status retry(const TextSink& sink);

  private:
    Conversation(Engine& engine, ConversationOptions options, Session session)
        : engine_(&engine), options_(std::move(options)), session_(std::move(session)) {}
    Result<std::vector<std::int32_t>> turn(const std::string& text) const;
    // What a person can do where the context is too short.
    std::string remedy() const;

    // A question that was answered, and what there was before it.
    struct Turn {
        std::string text;
        std::size_t tokens = 0;
        bool answer_ended = false;
    };

    Engine* engine_;
    ConversationOptions options_;
    Session session_;
    std::vector<std::int32_t> tokens_;  // all that was said, the last answer included
    std::vector<Turn> turns_;
    bool answer_ended_ = false;  // by an end token
    std::string cut_note_;
    bool answering_ = false;
    bool refused_ = false;
};

}  // namespace strata::cli
