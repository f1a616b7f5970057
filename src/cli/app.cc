#include "cli/app.h"

#include <CLI/CLI.hpp>
#include <exception>
#include <new>

#include "base/text.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"

namespace strata::cli {
namespace {

std::vector<Command> all_commands() {
    return {
        {"generate", "Complete a text or a list of tokens", add_generate},
        {"chat", "Talk with a model in its chat form", add_chat},
        {"logits", "Write the logits of every position to a file", add_logits},
        {"features", "Write the mean of the residual streams after chosen layers", add_features},
        {"draft", "Guess the tokens that follow a context", add_draft},
        {"convert", "Make a GGUF file of a checkpoint folder", add_convert},
        {"dflash-head", "Give a DFlash2 draft an embedding and a head", add_dflash_head},
        {"mtp-head", "Give an MTP layer a head of its own, in a file of its own", add_mtp_head},
        {"inspect", "Show what is in a GGUF file", add_inspect},
        {"quantize", "Write a model in other number formats", add_quantize},
        {"synth", "Write a model of random weights", add_synth},
        {"eval", "Measure how well a model predicts a text", add_eval},
        {"bench", "Measure how fast a model runs, beside what the machine allows", add_bench},
    };
}

constexpr const char* kFooter =
    "Whole numbers take units: k, M, G, T, KiB, MiB, GiB and TiB are powers of 1024,\n"
    "KB, MB, GB and TB powers of 1000.\n"
    "Exit status: 0 done, 1 failed, 2 wrong use.";

int ended(const Status& status) {
    if (status.ok()) return kDone;
    // Like other programs in a pipe: nobody is left to tell.
    if (reader_gone()) return kFailed;
    tell(status.error().message);
    return kFailed;
}

// The command that was named last, and the names before its own.
struct Used {
    const CLI::App* app;
    std::string before;
};

Used command_used(const CLI::App& app) {
    Used used{&app, ""};
    for (auto next = app.get_subcommands(); !next.empty(); next = used.app->get_subcommands()) {
        if (!used.before.empty()) used.before += ' ';
        used.before += used.app->get_name();
        used.app = next.front();
    }
    return used;
}

std::string names_of_commands(const CLI::App& used) {
    std::string names;
    for (const CLI::App* command : used.get_subcommands(nullptr)) {
        if (!names.empty()) names += ", ";
        names += command->get_name();
    }
    return names;
}

// A word that nothing takes.
std::string not_taken(const CLI::App& used, const std::string& word) {
    if (word.size() > 1 && word[0] == '-') {
        return concat(quote(word), " is no option of ", used.get_name());
    }
    if (used.get_require_subcommand_min() > 0) {
        return concat(quote(word), " is no command, wanted one of ", names_of_commands(used));
    }
    return concat(quote(word), " is one value more than ", used.get_name(), " takes");
}

std::string not_given(const CLI::App& used) {
    for (const CLI::Option* option : used.get_options()) {
        if (!option->get_required() || option->count() > 0) continue;
        const std::string name = option->get_name();
        const std::string wanted =
            option->get_positional() ? "one" : concat(name, ' ', option->get_type_name());
        return concat("no ", name, " is given, wanted ", wanted);
    }
    return concat("no command is given, wanted one of ", names_of_commands(used));
}

// An option with too few values or too many. CLI11 names it and tells no more of it.
std::string miscounted(const CLI::App& used, const std::string& said) {
    for (const CLI::Option* option : used.get_options()) {
        const std::string name = option->get_name();
        if (said.starts_with(name + ':')) {
            if (option->count() <= 1) {
                return concat(name, " has no value, wanted ", option->get_type_name());
            }
            return concat(name, " is given ", option->count(), " times, wanted once");
        }
        if (said.starts_with(option->get_single_name() + ' ')) {
            return concat(name, " has a value, wanted none");
        }
    }
    return said;
}

// What was wrong, in a sentence.
std::string what_is_wrong(const CLI::ParseError& error, const CLI::App& used) {
    const std::vector<std::string> found = used.remaining();
    switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
        case CLI::ExitCodes::RequiredError:
            return found.empty() ? not_given(used) : not_taken(used, found.front());
        case CLI::ExitCodes::ExtrasError:
            return found.empty() ? error.what() : not_taken(used, found.front());
        case CLI::ExitCodes::ArgumentMismatch:
            return miscounted(used, error.what());
        default:
            return error.what();
    }
}

int parse_and_run(int argc, const char* const* argv) {
    CLI::App app("Strata runs Qwen3.8-Flash-Next and models of its architecture.", "strata");
    app.set_version_flag("--version", "strata " STRATA_VERSION);
    app.footer(kFooter);
    app.formatter(help_format());
    const Run chosen = Options(app).commands(all_commands());
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        const Used used = command_used(app);
        return ended(print(used.app->help(used.before)));
    } catch (const CLI::CallForVersion&) {
        return ended(print("strata " STRATA_VERSION "\n"));
    } catch (const CLI::ParseError& error) {
        const Used used = command_used(app);
        const std::string space = used.before.empty() ? "" : " ";
        tell(concat(what_is_wrong(error, *used.app), " (", used.before, space, used.app->get_name(),
                    " --help tells more)"));
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
