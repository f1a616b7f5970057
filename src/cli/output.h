// What a command writes: standard output, and a progress bar on standard error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace strata::cli {

// All of `text` to standard output, at once. Error: it cannot be written.
Status print(std::string_view text);

// Whether print() failed because nobody reads standard output any more.
bool reader_gone();

// Text for a person, on standard error and only when it is a terminal.
void note(std::string_view text);

bool errors_on_terminal();
// The same, terminal or not: what a person should know of a run that goes on.
void warn(std::string_view text);
// A sentence on standard error, "strata: " before it. Names that came in on the command line may
// hold anything: it is one line.
void tell(const std::string& message);

// A line that is redrawn on standard error when it is a terminal, and taken away at the end or
// before anything else is written.
class Progress {
  public:
    explicit Progress(std::string what);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();

    void show(std::int64_t done, std::int64_t total);

  private:
    std::string what_;
    std::int64_t shown_ = -1;  // per cent
    bool terminal_;
};

}  // namespace strata::cli
