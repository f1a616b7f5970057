// The fixture of tools/reference/tokenizer_fixture.py.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace strata {

struct TokenizerCase {
    bool special = false;
    std::vector<TokenId> ids;
    std::string text;
};

// A file of tests/tokenizer/data; empty where it cannot be read.
std::string read_data(const std::string& name);
// The lines of a cases.txt.
std::vector<TokenizerCase> parse_cases(const std::string& content);
// tokenizer.json of the fixture.
const Tokenizer& fixture_tokenizer();

}  // namespace strata
