#include <gtest/gtest.h>

#include "tests/convert/convert_case.h"

namespace strata::test {
namespace {

using nlohmann::ordered_json;

class ConvertTokenizer : public testing::Test {
  protected:
    ConvertTokenizer() : tokenizer_(read_file(STRATA_TEST_DATA "/tokenizer.json")) {}

    // A model with room for the tokenizer's tokens and a few more.
    static HfCheckpoint checkpoint(std::uint64_t vocabulary) {
        auto config = small_config();
        config["vocab_size"] = vocabulary;
        return HfCheckpoint::random(config);
    }
    static std::optional<std::uint64_t> number(const gguf::File& file, const char* key) {
        const gguf::Value* value = file.find(key);
        return value == nullptr ? std::nullopt : value->as_uint();
    }

    const std::string tokenizer_;
};

TEST_F(ConvertTokenizer, a_checkpoint_without_a_tokenizer_keeps_its_end_tokens) {
    const ConvertCase made(checkpoint(37));
    gguf::File file = made.file();
    EXPECT_EQ(file.find("tokenizer.ggml.model")->as_string(), "none");
    EXPECT_EQ(number(file, "qwen4exp.vocab_size"), 37U);
    EXPECT_EQ(number(file, "tokenizer.ggml.eos_token_id"), 5U);
    EXPECT_EQ(file.find("tokenizer.ggml.eos_token_ids")->as_uints(),
              (std::vector<std::uint64_t>{5, 6}));
    write_file(made.input() + "/generation_config.json", R"({"eos_token_id": [20, 21, 20, 22]})");
    file = made.file();
    EXPECT_EQ(number(file, "tokenizer.ggml.eos_token_id"), 20U);
    EXPECT_EQ(number(file, "tokenizer.ggml.eot_token_id"), 21U);
    EXPECT_EQ(file.find("tokenizer.ggml.eos_token_ids")->as_uints(),
              (std::vector<std::uint64_t>{20, 21, 22}));
    EXPECT_EQ(number(file, "qwen4exp.ple.eos_token_id"), 5U);
    write_file(made.input() + "/generation_config.json", R"({"eos_token_id": 8})");
    file = made.file();
    EXPECT_EQ(number(file, "tokenizer.ggml.eos_token_id"), 8U);
    EXPECT_EQ(file.find("tokenizer.ggml.eot_token_id"), nullptr);
    EXPECT_EQ(file.find("tokenizer.ggml.eos_token_ids"), nullptr);
}

TEST_F(ConvertTokenizer, sampling_defaults_are_kept_under_the_keys_that_llama_cpp_knows) {
    const ConvertCase made(checkpoint(37));
    write_file(made.input() + "/generation_config.json",
               R"({"temperature": 0.5, "top_k": 20, "top_p": 0.95, "min_p": 0.25,
                   "repetition_penalty": 1.125, "max_new_tokens": 5})");
    const gguf::File file = made.file();
    EXPECT_EQ(file.find("general.sampling.temp")->as_float(), 0.5);
    EXPECT_EQ(file.find("general.sampling.top_k")->as_int(), 20);
    EXPECT_EQ(file.find("general.sampling.top_p")->as_float(), static_cast<double>(0.95F));
    EXPECT_EQ(file.find("general.sampling.min_p")->as_float(), 0.25);
    EXPECT_EQ(file.find("general.sampling.penalty_repeat")->as_float(), 1.125);
}

TEST_F(ConvertTokenizer, what_loading_the_file_would_refuse_is_refused_here) {
    const ConvertCase made(checkpoint(37));
    for (const char* bad : {R"({"temperature": -0.5})", R"({"top_p": 1.5})", R"({"min_p": 2})",
                            R"({"repetition_penalty": 0})"}) {
        write_file(made.input() + "/generation_config.json", bad);
        EXPECT_TRUE(says(made.error(), "generation_config.json")) << bad;
    }
    const ConvertCase lacking(checkpoint(1200));
    std::string text = tokenizer_;
    // The token of the byte 'z' becomes one of two characters that nothing merges to.
    const std::string token = "\"z\":";
    ASSERT_NE(text.find(token), std::string::npos);
    text.replace(text.find(token), token.size(), "\"z~~\":");
    write_file(lacking.input() + "/tokenizer.json", text);
    EXPECT_TRUE(says(lacking.error(), "tokenizer.json"));
}

TEST_F(ConvertTokenizer, generation_settings_that_are_anything_are_errors) {
    const ConvertCase made(checkpoint(37));
    for (const char* text : {"", "[]", "{\"eos_token_id\": 37}", "{\"eos_token_id\": \"a\"}",
                             "{\"eos_token_id\": [1, -1]}", "{\"temperature\": \"hot\"}",
                             "{\"top_k\": 2.5}", "{\"top_p\": []}"}) {
        write_file(made.input() + "/generation_config.json", text);
        EXPECT_TRUE(says(made.error(), "generation_config.json")) << text;
    }
}

TEST_F(ConvertTokenizer, tokens_are_padded_to_the_vocabulary_with_unused_ones) {
    const std::size_t tokens = ordered_json::parse(tokenizer_)["model"]["vocab"].size() +
                               ordered_json::parse(tokenizer_)["added_tokens"].size();
    const ConvertCase made(checkpoint(tokens + 100));
    write_file(made.input() + "/tokenizer.json", tokenizer_);
    const gguf::File file = made.file();
    EXPECT_EQ(file.find("tokenizer.ggml.model")->as_string(), "gpt2");
    EXPECT_EQ(file.find("tokenizer.ggml.pre")->as_string(), "qwen35");
    const auto names = file.find("tokenizer.ggml.tokens")->as_strings().value();
    const auto types = file.find("tokenizer.ggml.token_type")->as_ints().value();
    ASSERT_EQ(names.size(), tokens + 100);
    ASSERT_EQ(types.size(), tokens + 100);
    EXPECT_EQ(types.back(), 5);
    EXPECT_EQ(names.back(), "[PAD" + std::to_string(tokens + 99) + "]");
    EXPECT_GT(file.find("tokenizer.ggml.merges")->count(), 0U);
    EXPECT_EQ(file.find("tokenizer.ggml.add_bos_token")->as_bool(), false);
}

TEST_F(ConvertTokenizer, named_tokens_and_the_chat_template_come_along) {
    const ConvertCase made(checkpoint(4000));
    write_file(made.input() + "/tokenizer.json", tokenizer_);
    const ordered_json added = ordered_json::parse(tokenizer_)["added_tokens"][0];
    const std::string name = added["content"];
    write_file(
        made.input() + "/tokenizer_config.json",
        ordered_json{{"eos_token", name}, {"pad_token", name}, {"chat_template", "one"}}.dump());
    gguf::File file = made.file();
    EXPECT_EQ(number(file, "tokenizer.ggml.eos_token_id"), added["id"].get<std::uint64_t>());
    EXPECT_EQ(number(file, "tokenizer.ggml.padding_token_id"), added["id"].get<std::uint64_t>());
    EXPECT_EQ(file.find("tokenizer.chat_template")->as_string(), "one");
    write_file(made.input() + "/chat_template.jinja", "two");
    file = made.file();
    EXPECT_EQ(file.find("tokenizer.chat_template")->as_string(), "two");
}

TEST_F(ConvertTokenizer,
       a_tokenizer_with_more_tokens_than_the_model_or_of_another_kind_is_refused) {
    const ConvertCase made(checkpoint(37));
    write_file(made.input() + "/tokenizer.json", tokenizer_);
    EXPECT_TRUE(says(made.error(), "wanted at most the model's vocabulary of 37"));
    write_file(made.input() + "/tokenizer.json", "{}");
    EXPECT_TRUE(says(made.error(), "tokenizer.json"));
}

}  // namespace
}  // namespace strata::test
