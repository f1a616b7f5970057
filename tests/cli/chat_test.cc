#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "tests/cli/expect.h"
#include "tests/cli/models.h"
#include "tests/cli/run_binary.h"

namespace strata::test {
namespace {

using Words = std::vector<std::string>;

Ran chat(const Words& more, const std::string& input = "") {
    Words words = {"chat", "-m", talking().path(), "--temp", "1.5"};
    if (std::find(more.begin(), more.end(), "--seed") == more.end()) {
        words.insert(words.end(), {"--seed", "4"});
    }
    words.insert(words.end(), more.begin(), more.end());
    RunOptions options;
    options.input = input;
    return run_strata(words, options);
}

TEST(Chat, one_question_is_answered_and_the_program_ends) {
    const Ran ran = chat({"-p", "what is it?", "-n", "12"});
    expect_done(ran);
    EXPECT_GT(ran.out.size(), 4U);
    EXPECT_TRUE(ran.out.ends_with("\n"));
}

TEST(Chat, a_pipe_is_a_conversation_one_line_a_turn) {
    const std::string alone = chat({"-n", "12"}, "what is it?\n").out;
    EXPECT_EQ(alone, chat({"-p", "what is it?", "-n", "12"}).out);
    const Ran both = chat({"-n", "12"}, "what is it?\r\n\nwhat is it?");
    expect_done(both);
    EXPECT_EQ(both.out.substr(0, alone.size()), alone);
    EXPECT_GT(both.out.size(), alone.size());
    EXPECT_NE(both.out, alone + alone) << "the second turn has the first before it";
}

TEST(Chat, clear_forgets_and_exit_ends) {
    const std::string alone = chat({"-n", "12"}, "what is it?\n").out;
    const Ran ran = chat({"-n", "12"}, "what is it?\n/clear\nwhat is it?\n/exit\nmore\n");
    expect_done(ran);
    EXPECT_EQ(ran.out, alone + alone);
}

TEST(Chat, undo_and_retry_go_back_one_turn) {
    const std::string alone = chat({"-n", "12"}, "what is it?\n").out;
    const std::string next = chat({"-n", "12", "--seed", "5"}, "what is it?\n").out;
    ASSERT_NE(alone, next);
    const Ran undone = chat({"-n", "12"}, "is it?\n/undo\nwhat is it?\n");
    expect_done(undone);
    EXPECT_TRUE(undone.out.ends_with(alone)) << undone.out;
    EXPECT_EQ(chat({"-n", "12"}, "what is it?\n/retry\n").out, alone + next);
    EXPECT_EQ(chat({"-n", "12", "--checkpoints", "0"}, "what is it?\n/retry\n").out, alone + next);
    const Ran nothing = chat({"-n", "12"}, "/retry\n/undo\nwhat is it?\n");
    EXPECT_EQ(nothing.out, alone);
    EXPECT_NE(nothing.err.find("no question for /undo"), std::string::npos);
}

TEST(Chat, help_lists_the_commands) {
    const Ran ran = chat({}, "/help\n");
    expect_done(ran);
    for (const char* command : {"/clear", "/exit", "/help", "/retry", "/undo"}) {
        EXPECT_NE(ran.out.find(command), std::string::npos);
    }
}

TEST(Chat, what_was_asked_for_changes_the_answer) {
    const std::string plain = chat({"-p", "what is it?", "-n", "12"}).out;
    EXPECT_NE(chat({"-p", "what is it?", "-n", "12", "--system", "be brief"}).out, plain);
    EXPECT_NE(chat({"-p", "what is it?", "-n", "12", "--think"}).out, plain);
    EXPECT_EQ(chat({"-p", "what is it?", "-n", "12", "--no-think"}).out, plain);
}

TEST(Chat, a_full_context_is_an_error_with_the_numbers) {
    const Ran full = chat({"-c", "64"}, "what is it?\nand then?\n");
    EXPECT_EQ(full.status, 1);
    EXPECT_NE(full.err.find("the context is full"), std::string::npos) << full.err;
    EXPECT_EQ(std::count(full.err.begin(), full.err.end(), '\n'), 1);
    EXPECT_TRUE(full.err.ends_with(" tokens, and /clear or a larger --context is wanted\n"));
    expect_failed(chat({"-c", "8", "-p", "what is it that does not fit?"}),
                  "context of 8: a larger --context is wanted");
}

// Neither where nothing comes after the answer, nor past what the model was trained for.
TEST(Chat, a_full_context_is_answered_with_advice_that_can_be_followed) {
    const TempDir folder;
    const std::string model = folder / "short.gguf";
    expect_done(run_strata({"synth", model, "--preset", "tiny", "--context", "48"}));
    const auto ask = [&](const Words& more, const std::string& input) {
        Words words = {"chat", "-m", model, "--temp", "0"};
        words.insert(words.end(), more.begin(), more.end());
        RunOptions options;
        options.input = input;
        return run_strata(words, options).err;
    };
    const std::string question(60, 'x');
    EXPECT_TRUE(ask({}, question + "\n")
                    .find("more than the context of 48: that is all that the model was trained "
                          "for\n") != std::string::npos);
    EXPECT_TRUE(ask({"-n", "4"}, "x\n" + question + "\n")
                    .find("more than the context of 48: /clear is wanted\n") != std::string::npos);
    EXPECT_TRUE(
        ask({"-p", question}, "")
            .ends_with(
                "more than the context of 48: that is all that the model was trained for\n"));
    EXPECT_TRUE(ask({"-p", question, "-c", "40"}, "")
                    .ends_with("more than the context of 40: a larger --context is wanted\n"));
}

TEST(Chat, a_line_that_does_not_fit_is_refused_and_the_next_is_answered) {
    const Words words = {"-n", "12", "-c", "80"};
    const std::string alone = chat(words, "what is it?\n").out;
    std::string tokens;
    for (int i = 0; i < 100; ++i) tokens += "what ";
    // Of more tokens than the context, and of more bytes than a line may have.
    for (const std::string& line : {tokens, std::string((std::size_t{16} << 20) + 1, 'x')}) {
        const Ran ran = chat(words, line + "\nwhat is it?\n");
        EXPECT_EQ(ran.out, alone);
        EXPECT_EQ(ran.status, 1);
        EXPECT_NE(ran.err.find(line == tokens ? "context of 80" : "16777216 bytes"),
                  std::string::npos)
            << ran.err;
        EXPECT_NE(ran.err.find("1 line of standard input not answered"), std::string::npos);
    }
}

TEST(Chat, a_command_that_is_none_is_no_question) {
    const Ran ran = chat({"-n", "4"}, "/bogus\n/help\n");
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.err.find("there is no command /bogus"), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out.rfind("/clear  ", 0), 0U) << ran.out;
}

TEST(Chat, an_interrupt_ends_the_answer) {
    RunOptions options;
    options.signal_at_output = SIGINT;
    const Ran ran = run_strata(
        {"chat", "-m", talking().path(), "--temp", "1", "--seed", "1", "-p", "what is it?"},
        options);
    EXPECT_EQ(ran.status, 1);
    EXPECT_EQ(ran.err, "strata: interrupted\n");
    EXPECT_TRUE(ran.out.ends_with("\n"));
}

TEST(Chat, a_model_without_a_tokenizer_cannot_chat) {
    expect_failed(run_strata({"chat", "-m", tiny().path(), "-p", "hello"}), "no tokenizer");
}

}  // namespace
}  // namespace strata::test
