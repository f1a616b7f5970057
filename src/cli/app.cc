#include "cli/app.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <exception>
#include <new>

#include "base/text.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"

namespace strata::cli {
namespace {

struct Command {
    const char* name;
    const char* help;
    Run (*add)(Options&);
};

constexpr std::array kCommands = {
    Command{"generate", "Complete a text or a list of tokens", add_generate},
    Command{"chat", "Talk with a model in its chat form", add_chat},
    Command{"logits", "Write the logits of every position to a file", add_logits},
    Command{"features", "Write the mean of the residual streams after chosen layers", add_features},
    Command{"draft", "Guess the tokens that follow a context", add_draft},
    Command{"convert", "Make a GGUF file of a checkpoint folder", add_convert},
    Command{"inspect", "Show what is in a GGUF file", add_inspect},
};

constexpr const char* kFooter =
    "Whole numbers take units: k, M, G, T, KiB, MiB, GiB and TiB are powers of 1024,\n"
    "KB, MB, GB and TB powers of 1000.\n"
    "Exit status: 0 done, 1 failed, 2 wrong use.";

// Names that came in on the command line may hold anything; a message is one line.
std::string one_line(const std::string& text) {
    const std::string quoted = quote(text);
    return quoted.substr(1, quoted.size() - 2);
}

void tell(const std::string& message) {
    const std::string line = concat("strata: ", one_line(message), "\n");
    // A failed write has nobody to tell.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

int ended(const Status& status) {
    if (status.ok()) return kDone;
    if (!reader_gone()) tell(status.error().message);
    return kFailed;
}

int parse_and_run(int argc, const char* const* argv) {
    CLI::App app("Strata runs Qwen3.8-Flash-Next and models of its architecture.", "strata");
    app.set_version_flag("--version", "strata " STRATA_VERSION);
    app.require_subcommand(1);
    app.footer(kFooter);
    app.formatter(help_format());
    Run chosen;
    for (const Command& command : kCommands) {
        CLI::App* sub = app.add_subcommand(command.name, command.help);
        sub->footer(kFooter);
        Options options(*sub);
        sub->parse_complete_callback([&chosen, run = command.add(options)] { chosen = run; });
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        const auto used = app.get_subcommands();
        return ended(print(used.empty() ? app.help() : used.front()->help("strata")));
    } catch (const CLI::CallForVersion&) {
        return ended(print("strata " STRATA_VERSION "\n"));
    } catch (const CLI::ParseError& error) {
        const auto used = app.get_subcommands();
        const std::string name = used.empty() ? "" : " " + used.front()->get_name();
        tell(concat(error.what(), " (strata", name, " --help tells more)"));
        return kWrongUse;
    }
    return ended(chosen());
}

}  // namespace

int run(int argc, const char* const* argv) {
    try {
        return parse_and_run(argc, argv);
    } catch (const std::bad_alloc&) {
        tell("out of memory");
    } catch (const std::exception& error) {
        tell(error.what());
    }
    return kFailed;
}

}  // namespace strata::cli
