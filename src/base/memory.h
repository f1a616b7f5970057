// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

// Bytes that the system can give without swapping and that no control group above this process
// forbids; what the page cache holds of files counts as free in both. The largest number where the
// system does not say. `root` stands before every path that is read: a test's own files.
std::uint64_t available_memory(const std::string& root = "");

// The same in words for errors, with the limit on what the process maps, where there is one: under
// that, memory can end while plenty is available.
std::string memory_left();

}  // namespace strata
