#include <string>
#include <string_view>

#include "base/text.h"
#include "engine/model_text.h"

namespace strata {
namespace {

// Writes ChatML. Each message's text is encoded together with its role line, as a template would
// have it, but never recognised as a control token.
class ChatWriter {
  public:
    static Result<ChatWriter> create(const Tokenizer& tokenizer) {
        const auto start = tokenizer.find("<|im_start|>");
        const auto end = tokenizer.find("<|im_end|>");
        if (!start || !end) {
            return STRATA_ERROR("the model's tokenizer has no ",
                                start ? "<|im_end|>" : "<|im_start|>",
                                " token, which its chat form needs");
        }
        return ChatWriter(tokenizer, *start, *end);
    }

    void message(std::string_view role, std::string_view text) {
        ids_.push_back(start_);
        plain(concat(role, '\n', text));
        end_message();
    }
    void end_message() { ids_.push_back(end_); }
    void line_end() { plain("\n"); }

    // The head of an answer. Models without thinking tokens get none.
    void answer(bool thinking) {
        ids_.push_back(start_);
        const auto open = tokenizer_.find("<think>");
        const auto close = tokenizer_.find("</think>");
        plain("assistant\n");
        if (!open || !close) return;
        ids_.push_back(*open);
        plain(thinking ? "\n" : "\n\n");
        if (thinking) return;
        ids_.push_back(*close);
        plain("\n\n");
    }

    std::vector<std::int32_t> take() { return std::move(ids_); }

  private:
    ChatWriter(const Tokenizer& tokenizer, std::int32_t start, std::int32_t end)
        : tokenizer_(tokenizer), start_(start), end_(end) {}
    void plain(std::string_view text) {
        const auto ids = tokenizer_.encode(text);
        // insert() of the range makes GCC 12 warn of an overflow that cannot be.
        for (const std::int32_t id : ids) ids_.push_back(id);
    }

    const Tokenizer& tokenizer_;
    std::int32_t start_;
    std::int32_t end_;
    std::vector<std::int32_t> ids_;
};

}  // namespace

Result<std::vector<std::int32_t>> chat_prompt(const Tokenizer& tokenizer,
                                              std::span<const Message> messages, bool thinking) {
    STRATA_ASSIGN(ChatWriter writer, ChatWriter::create(tokenizer));
    for (const Message& message : messages) {
        if (message.role != "system" && message.role != "user" && message.role != "assistant") {
            return STRATA_ERROR("a message has the role ", quote(message.role),
                                ", wanted system, user or assistant");
        }
        writer.message(message.role, message.text);
        writer.line_end();
    }
    writer.answer(thinking);
    return writer.take();
}

Result<std::vector<std::int32_t>> chat_turn(const Tokenizer& tokenizer, std::string_view text,
                                            bool thinking, bool answer_ended) {
    STRATA_ASSIGN(ChatWriter writer, ChatWriter::create(tokenizer));
    if (!answer_ended) writer.end_message();
    writer.line_end();
    writer.message("user", text);
    writer.line_end();
    writer.answer(thinking);
    return writer.take();
}

}  // namespace strata
