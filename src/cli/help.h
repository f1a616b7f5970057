// How --help looks.
#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}

namespace strata::cli {

// Options in one column, what they do in another, lines of at most 100 characters.
std::shared_ptr<CLI::FormatterBase> help_format();

}  // namespace strata::cli
