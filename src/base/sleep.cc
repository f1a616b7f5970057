#include "base/sleep.h"

#include <thread>

namespace strata {

void sleep_for(std::chrono::microseconds time) { std::this_thread::sleep_for(time); }

}  // namespace strata
