// The program.
#include <csignal>

#include "cli/app.h"

int main(int argc, char** argv) {
    // A reader that goes away shows as a failed write.
    std::signal(SIGPIPE, SIG_IGN);
    // So does a file that reached the size that the process may write.
    std::signal(SIGXFSZ, SIG_IGN);
    return strata::cli::run(argc, argv);
}
