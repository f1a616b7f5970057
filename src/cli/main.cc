// The program.
#include <csignal>

#include "cli/app.h"

int main(int argc, char** argv) {
    // A reader that goes away shows as a failed write.
    std::signal(SIGPIPE, SIG_IGN);
    return strata::cli::run(argc, argv);
}
