// Runs the program as a person or a script would, and collects what comes of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace strata::test {

struct Ran {
    int status = -1;  // exit status; -1: it was ended by a signal
    int signal = 0;
    bool timed_out = false;
    std::string out;
    std::string err;
};

struct RunOptions {
    std::string input;                               // standard input
    std::map<std::string, std::string> environment;  // beside the test's own
    std::optional<std::uint64_t> file_bytes_max;     // a write past this fails, as on a full disk
    std::optional<std::uint64_t> address_bytes_max;  // of all that it maps, as of ulimit -v
    std::string output_path;                         // standard output goes to this file instead
    bool reader_leaves = false;                      // nobody reads standard output
    int signal_at_output = 0;                        // sent once when the first output comes
    std::string output_file;  // ... where this is given when a file beside it is being written
    std::chrono::seconds limit{120};
};

Ran run_strata(const std::vector<std::string>& arguments, const RunOptions& options = {});

}  // namespace strata::test
