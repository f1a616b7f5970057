// strata chat: a conversation in a terminal or over a pipe.
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "cli/command.h"
#include "cli/conversation.h"
#include "cli/drafting_options.h"
#include "cli/format_options.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/sampling_options.h"
#include "strata/engine.h"

namespace strata::cli {
namespace {

constexpr std::string_view kHelp =
    "/clear  forget the conversation, keep the system message\n"
    "/retry  answer the last question anew, with the next seed\n"
    "/undo   take the last question and its answer back\n"
    "/exit   end; so does the end of the input\n"
    "/help   this list\n"
    "Ctrl-C cancels the answer being written, and at the prompt ends.\n";

struct Chat {
    ModelOptions model;
    SamplingOptions sampling;
    FormatOptions format;
    DraftingOptions drafting;
    std::optional<std::string> system;
    std::optional<std::string> question;
    std::optional<std::int64_t> max_tokens;
    bool thinking = false;
    bool no_thinking = false;
};

// One answer, written as it comes: to `question`, or anew to the last one where there is none. A
// context that is full afterwards is an error.
Status answer(Conversation& conversation, const std::optional<std::string>& question,
              const Interrupt& interrupt) {
    Status printed = Ok{};
    const auto sink = [&](std::string_view text) {
        printed = print(text);
        return printed.ok() && !interrupt.seen();
    };
    const Status answered = question ? conversation.ask(*question, sink) : conversation.retry(sink);
    STRATA_TRY(printed);
    // The line is ended before an error is told, where one was begun.
    if (answered.ok() || conversation.answering()) STRATA_TRY(print("\n"));
    warn(conversation.cut_note());
    return answered;
}

std::string memory_line(const ModelInfo& info) {
    const auto mib = [](std::uint64_t bytes) { return concat(bytes >> 20, " MiB"); };
    const MemoryUse& memory = info.memory;
    return concat("context ", info.context, " tokens; weights ", mib(memory.weights), ", state ",
                  mib(memory.state), ", workspace ", mib(memory.workspace), ", drafter ",
                  mib(memory.drafter), ", reserve ", mib(memory.reserve), ", checkpoints up to ",
                  mib(memory.checkpoints), "\n");
}

// What the lines of one input came to.
class Refused {
  public:
    // Tells why a line was not answered.
    void tell(const std::string& why) {
        strata::cli::tell(why);
        ++lines_;
    }
    Status at_end() const {
        if (lines_ == 0) return Ok{};
        return STRATA_ERROR(lines_, lines_ == 1 ? " line" : " lines",
                            " of standard input not answered");
    }

  private:
    std::int64_t lines_ = 0;
};

// A turn that does not fit leaves the conversation as it was, and the next may fit. From a terminal
// any error is told and the next turn waited for, since /clear may mend it.
Status take_turn(Conversation& conversation, const std::string& line, const Interrupt& interrupt,
                 bool terminal, Refused& refused) {
    if ((line == "/undo" || line == "/retry") && !conversation.begun()) {
        refused.tell(concat("there is no question for ", line));
        return Ok{};
    }
    if (line == "/undo") {
        conversation.undo();
        return Ok{};
    }
    const bool again = line == "/retry";
    const Status status =
        answer(conversation, again ? std::nullopt : std::optional(line), interrupt);
    if (status.ok()) return status;
    STRATA_TRY(conversation.status());
    if (reader_gone() || (!terminal && !conversation.refused())) return status;
    if (terminal) {
        note(concat(escaped(status.error().message), "\n"));
    } else {
        refused.tell(status.error().message);
    }
    return Ok{};
}

// What looks like a command, and is no question even where there is none of this name.
bool is_slash_word(std::string_view line) {
    return line.size() > 1 && line[0] == '/' &&
           std::all_of(line.begin() + 1, line.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// The turns of standard input until it ends.
Status converse(Conversation& conversation, const Interrupt& interrupt) {
    const bool terminal = ::isatty(STDIN_FILENO) == 1;
    LineReader lines;
    Refused refused;
    std::string line;
    while (true) {
        if (terminal) note("> ");
        STRATA_ASSIGN(const LineReader::Got got, lines.next(&line));
        if (got == LineReader::Got::too_long) {
            refused.tell(concat("a line of standard input is longer than ", kLineBytesMax,
                                " bytes, and is left out"));
            continue;
        }
        if (got != LineReader::Got::line) {
            if (terminal) note("\n");
            return terminal ? Status(Ok{}) : refused.at_end();
        }
        if (line.empty()) continue;
        if (line == "/exit") return terminal ? Status(Ok{}) : refused.at_end();
        if (line == "/help") {
            STRATA_TRY(print(kHelp));
            continue;
        }
        if (line == "/clear") {
            conversation.clear();
            continue;
        }
        if (is_slash_word(line) && line != "/retry" && line != "/undo") {
            refused.tell(concat("there is no command ", line, ", and /help lists those there are"));
            continue;
        }
        STRATA_TRY(take_turn(conversation, line, interrupt, terminal, refused));
        if (interrupt.seen() && !terminal) return interrupt.status();
        interrupt.forget();
    }
}

Status run(const Chat& options) {
    STRATA_ASSIGN(const auto engine, load(options.model, options.drafting));
    ConversationOptions how;
    how.system = options.system;
    how.thinking = options.thinking;
    how.max_tokens = options.max_tokens.value_or(-1);
    how.format = format_of(options.format);
    how.drafting = drafting_of(options.drafting);
    how.one_question = options.question.has_value();
    how.sampling = chosen(options.sampling, engine->info().sampling);
    STRATA_ASSIGN(Conversation conversation, Conversation::start(*engine, how));
    const Interrupt interrupt({SIGINT});
    note(memory_line(engine->info()));
    if (!options.question) return converse(conversation, interrupt);
    STRATA_TRY(answer(conversation, options.question, interrupt));
    return interrupt.status();
}

}  // namespace

Run add_chat(Options& options) {
    const auto to = std::make_shared<Chat>();
    add_model_options(options, &to->model);
    options.text(
        "-p,--prompt", "TEXT", &to->question,
        "Answer this and end (default: a conversation, one line of standard input a turn)");
    options.text("--system", "TEXT", &to->system, "The system message");
    options.flag("--think", &to->thinking, "Let the model think before it answers");
    options.flag("--no-think", &to->no_thinking, "Let it answer at once (the default)");
    options.integer("-n,--max-tokens", {1, INT64_MAX}, &to->max_tokens,
                    "Tokens of an answer at most (default: until it ends or the context is full)");
    options.integer("--checkpoints", {0, INT64_MAX}, &to->model.checkpoints,
                    "Bytes for states of earlier turns, so that /retry, /undo and /clear read "
                    "nothing twice (default: one of the whole context, and some more)");
    add_sampling_options(options, &to->sampling);
    add_format_options(options, &to->format);
    add_drafting_options(options, &to->drafting);
    options.check([to]() -> Status {
        if (to->thinking && to->no_thinking) {
            return STRATA_ERROR("both --think and --no-think are given: one of them is wanted");
        }
        if (to->question && to->question->empty()) {
            return STRATA_ERROR("-p is empty, and a question is wanted");
        }
        return Ok{};
    });
    return [to] { return run(*to); };
}

}  // namespace strata::cli
