#include "tests/tokenizer/cases.h"

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/check.h"

namespace strata {

namespace {

std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '\\' || i + 1 == text.size()) {
            out += text[i];
            continue;
        }
        const char code = text[++i];
        switch (code) {
            case 'n':
                out += '\n';
                break;
            case 'r':
                out += '\r';
                break;
            case 't':
                out += '\t';
                break;
            case '0':
                out += '\0';
                break;
            default:
                out += code;
        }
    }
    return out;
}

}  // namespace

std::string read_data(const std::string& name) {
    std::ifstream file(STRATA_TOKENIZER_DATA "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<TokenizerCase> parse_cases(const std::string& content) {
    std::vector<TokenizerCase> cases;
    std::istringstream lines(content);
    for (std::string line; std::getline(lines, line);) {
        const std::size_t first = line.find('\t');
        const std::size_t second = line.find('\t', first + 1);
        STRATA_CHECK(second != std::string::npos);
        TokenizerCase one;
        one.special = line.substr(0, first) == "special";
        std::istringstream ids(line.substr(first + 1, second - first - 1));
        for (TokenId id = 0; ids >> id;) one.ids.push_back(id);
        one.text = unescaped(line.substr(second + 1));
        cases.push_back(std::move(one));
    }
    return cases;
}

const Tokenizer& fixture_tokenizer() {
    static const Tokenizer tokenizer = [] {
        auto vocabulary = vocabulary_from_json(read_data("tokenizer.json"), "");
        auto created = Tokenizer::create(std::move(vocabulary).value());
        return std::move(created).value();
    }();
    return tokenizer;
}

}  // namespace strata
