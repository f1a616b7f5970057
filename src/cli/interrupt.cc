#include "cli/interrupt.h"

#include "base/text.h"

namespace strata::cli {
namespace {

volatile std::sig_atomic_t noted = 0;

void take(int signal) {
    if (noted != 0 && signal != SIGXCPU) {
        std::signal(signal, SIG_DFL);
        std::raise(signal);
    }
    noted = 1;
}

}  // namespace

Interrupt::Interrupt(std::initializer_list<int> signals) {
    noted = 0;
    for (const int signal : signals) {
        struct sigaction action {};
        action.sa_handler = take;  // without SA_RESTART, so that a wait for input ends
        sigemptyset(&action.sa_mask);
        struct sigaction before {};
        ::sigaction(signal, &action, &before);
        before_.emplace_back(signal, before);
    }
}

Interrupt::~Interrupt() {
    for (const auto& [signal, before] : before_) ::sigaction(signal, &before, nullptr);
}

bool Interrupt::seen() const { return noted != 0; }

void Interrupt::forget() const { noted = 0; }

Status Interrupt::status() const {
    if (!seen()) return Ok{};
    return STRATA_ERROR("interrupted");
}

}  // namespace strata::cli
