#include "cli/help.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <string>

namespace strata::cli {
namespace {

constexpr std::size_t kNameWidth = 30;
constexpr std::size_t kHelpWidth = 68;

class HelpFormat : public CLI::Formatter {
  public:
    std::string make_option(const CLI::Option* option, bool positional) const override {
        std::string out = "  " + make_option_name(option, positional) + make_option_opts(option);
        if (out.size() + 1 < kNameWidth) {
            out.resize(kNameWidth, ' ');
        } else {
            out += "\n" + std::string(kNameWidth, ' ');
        }
        std::istringstream words(make_option_desc(option));
        std::string word;
        std::size_t used = 0;
        while (words >> word) {
            if (used > 0 && used + 1 + word.size() > kHelpWidth) {
                out += "\n" + std::string(kNameWidth, ' ');
                used = 0;
            }
            if (used > 0) out += ' ';
            out += word;
            used += word.size() + 1;
        }
        return out + "\n";
    }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> help_format() { return std::make_shared<HelpFormat>(); }

}  // namespace strata::cli
