// Leaving the processor to others for a while.
#pragma once

#include <chrono>

namespace strata {

// Returns after at least so long.
void sleep_for(std::chrono::microseconds time);

}  // namespace strata
