// The options of one command: what they are called, where their values go, what a wrong value is
// answered with. Hides the command line library from the commands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/number.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::cli {

class Options;

// What a command does once the command line has been read. Its error ends the program.
using Run = std::function<Status()>;

// A command by name; `add` gives it its options and returns what to run.
struct Command {
    std::string name;
    std::string help;
    Run (*add)(Options& options);
};

// Every `to` must live until the command line has been read. `names` are "-m,--model" or, for a
// positional argument, "DIR".
class Options {
  public:
    // One option that has been added.
    class Added {
      public:
        explicit Added(CLI::Option* option) : option_(option) {}
        Added required();

      private:
        CLI::Option* option_;
    };

    explicit Options(CLI::App& app) : app_(app) {}

    void flag(const std::string& names, bool* to, const std::string& help);
    // A text that may not be empty.
    Added text(const std::string& names, const std::string& value, std::string* to,
               const std::string& help);
    // One that may.
    Added text(const std::string& names, const std::string& value, std::optional<std::string>* to,
               const std::string& help);
    // May be given without its value, which is then empty.
    void text_or_flag(const std::string& names, const std::string& value,
                      std::optional<std::string>* to, const std::string& help);
    // May be given several times.
    void texts(const std::string& names, const std::string& value, std::vector<std::string>* to,
               const std::string& help);
    // One of `choices`, whose place in the list goes to `to`.
    Added choice(const std::string& names, const std::vector<std::string>& choices, std::size_t* to,
                 const std::string& help);
    Added integer(const std::string& names, IntegerRange range, std::int64_t* to,
                  const std::string& help);
    Added integer(const std::string& names, IntegerRange range, std::optional<std::int64_t>* to,
                  const std::string& help);
    void seed(const std::string& names, std::optional<std::uint64_t>* to, const std::string& help);
    void real(const std::string& names, std::optional<double>* to, const std::string& help);
    // What `read` makes something of; its error is wrong use.
    void parsed(const std::string& names, const std::string& value,
                std::function<Status(const std::string& text)> read, const std::string& help);
    // A list of numbers, or @FILE for a file that holds one.
    Added list(const std::string& names, const std::string& item,
               std::optional<std::vector<std::int32_t>>* to, const std::string& help);

    // Commands of which one must follow. The result runs that one.
    Run commands(const std::vector<Command>& commands);

    // Runs after all options have been read; its error is wrong use.
    void check(std::function<Status()> check);

  private:
    using Take = std::function<Status(const std::string& text)>;
    CLI::Option* add(const std::string& names, const std::string& value, const std::string& help,
                     Take take);

    CLI::App& app_;
    std::shared_ptr<std::vector<std::function<Status()>>> checks_;
};

}  // namespace strata::cli
