// A damaged tokenizer.json gives an error or a tokenizer that works, never a crash.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/tokenizer/cases.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

// Whether the file was taken; what is taken must encode and decode.
bool survives(const std::string& json, const std::string& config = "") {
    auto vocabulary = vocabulary_from_json(json, config);
    if (!vocabulary.ok()) {
        EXPECT_FALSE(vocabulary.error().message.empty());
        return false;
    }
    vocabulary->nfc = false;
    const auto tokenizer = Tokenizer::create(std::move(vocabulary).value());
    if (!tokenizer.ok()) return false;
    const std::string text = "def f(x): return 'naïve 漢字' <|im_end|>\r\n";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    (void)tokenizer->encode_with_special(text);
    return true;
}

// The head of the file, where its structure is, byte by byte; the rest at every 1,511th byte.
TEST(TokenizerCorruption, a_file_cut_anywhere_is_an_error) {
    const std::string json = read_data("tokenizer.json");
    ASSERT_GT(json.size(), 10000u);
    for (std::size_t size = 0; size < json.size(); size += size < 4000 ? 1 : 1511) {
        ASSERT_FALSE(survives(json.substr(0, size))) << size;
    }
    for (std::size_t back = 1; back < 300; ++back) {
        ASSERT_FALSE(survives(json.substr(0, json.size() - back))) << back;
    }
}

TEST(TokenizerCorruption, changed_bytes_never_crash) {
    const std::string json = read_data("tokenizer.json");
    const std::string config = R"({"eos_token": "<|im_end|>", "chat_template": "x"})";
    std::mt19937 random(11);
    int taken = 0;
    for (int i = 0; i < 1000; ++i) {
        std::string damaged = json;
        std::string damaged_config = config;
        for (std::size_t n = 1 + random() % 3; n > 0; --n) {
            // Half of the damage to the part that is not just tokens.
            const std::size_t range = random() % 2 == 0 ? std::size_t{3000} : json.size();
            damaged[random() % range] = static_cast<char>(
                random() % 3 == 0 ? "\"\\{}[],:0129ntf"[random() % 15] : random());
        }
        if (i % 4 == 0) damaged_config[random() % config.size()] = static_cast<char>(random());
        taken += survives(damaged, damaged_config) ? 1 : 0;
    }
    EXPECT_LT(taken, 1000);
}

}  // namespace
}  // namespace strata
