// Text that a person hands over in files and on standard input.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/result.h"

namespace strata::cli {

inline constexpr std::size_t kTextBytesMax = std::size_t{256} << 20;
inline constexpr std::size_t kLineBytesMax = std::size_t{16} << 20;

// All of a file or pipe; "-": standard input. Errors: it cannot be read, or is longer than
// kTextBytesMax.
Result<std::string> read_text(const std::string& path);

// Lines of standard input, without their ends. A signal ends the wait for one.
class LineReader {
  public:
    enum class Got { line, too_long, end, interrupted };

    // A line longer than kLineBytesMax is read to its end and dropped. Error: a failed read.
    Result<Got> next(std::string* line);

  private:
    bool take(std::string* line);

    std::string buffer_;
    std::size_t searched_ = 0;  // bytes of the buffer known to hold no line end
    bool ended_ = false;
    bool dropping_ = false;  // what stands in the buffer is of a line that is too long
};

}  // namespace strata::cli
