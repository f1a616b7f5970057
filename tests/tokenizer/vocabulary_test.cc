// What a vocabulary may hold, and the sentence for each thing that it may not.
#include "tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/tokenizer/cases.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/tokenizer.h"

namespace strata {
namespace {

using Json = nlohmann::json;

// The fixture with its first tokens and the merges among them.
Json small_json() {
    static const Json json = [] {
        Json small = Json::parse(read_data("tokenizer.json"));
        Json& model = small["model"];
        constexpr int kTokens = 280;
        Json vocab = Json::object();
        for (const auto& [token, id] : model["vocab"].items()) {
            if (id < kTokens) vocab[token] = id;
        }
        model["vocab"] = vocab;
        model["merges"].erase(model["merges"].begin() + kTokens - 256, model["merges"].end());
        for (Json& added : small["added_tokens"])
            added["id"] = added["id"].get<int>() - 3000 + kTokens;
        return small;
    }();
    return json;
}

// The error for the small file after `change`; empty if there is none.
std::string error_after(const std::function<void(Json&)>& change, const std::string& config = "") {
    Json json = small_json();
    change(json);
    const auto vocabulary = vocabulary_from_json(json.dump(), config);
    return vocabulary.ok() ? std::string() : vocabulary.error().message;
}

testing::AssertionResult says(const std::string& error, const std::string& part) {
    if (error.find(part) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "'" << error << "' does not say '" << part << "'";
}

// The 256 bytes, "ab", "abc" and two added tokens.
GgufVocabulary small_gguf() {
    GgufVocabulary source;
    source.model = "gpt2";
    source.pre = "qwen35";
    for (int byte = 0; byte < 256; ++byte) {
        source.tokens.push_back(byte_spelling(static_cast<std::uint8_t>(byte)));
    }
    for (const char* token : {"ab", "abc", "<|im_end|>", "<think>", "[PAD260]"}) {
        source.tokens.emplace_back(token);
    }
    source.token_type.assign(258, 1);
    source.token_type.insert(source.token_type.end(), {3, 4, 5});
    source.merges = {"a b", "ab c"};
    source.eos_token_id = 258;
    return source;
}

std::string gguf_error_after(const std::function<void(GgufVocabulary&)>& change) {
    GgufVocabulary source = small_gguf();
    change(source);
    auto vocabulary = vocabulary_from_gguf(std::move(source));
    if (!vocabulary.ok()) return vocabulary.error().message;
    const auto tokenizer = Tokenizer::create(std::move(vocabulary).value());
    return tokenizer.ok() ? std::string() : tokenizer.error().message;
}

TEST(Vocabulary, gguf_arrays_make_a_tokenizer) {
    auto vocabulary = vocabulary_from_gguf(small_gguf());
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    EXPECT_EQ(vocabulary->eos_id, 258);
    EXPECT_FALSE(vocabulary->bos_id.has_value());
    EXPECT_TRUE(vocabulary->nfc);
    const auto tokenizer = Tokenizer::create(std::move(vocabulary).value());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->encode("abc"), std::vector<TokenId>{257});
    EXPECT_EQ(tokenizer->encode_with_special("abc<|im_end|>"), (std::vector<TokenId>{257, 258}));
    EXPECT_EQ(tokenizer->decode(std::vector<TokenId>{257, 260, 259}), "abc<think>");
}

TEST(Vocabulary, gguf_arrays_that_do_not_fit_together_are_errors) {
    using Gguf = GgufVocabulary;
    const auto error = gguf_error_after;
    EXPECT_TRUE(says(error([](Gguf& g) { g.model = "llama"; }), "'llama'"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.pre = "gpt-4o"; }), "'gpt-4o'"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.tokens.clear(), g.token_type.clear(); }), "0 tokens"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.token_type.pop_back(); }), "260 values for the 261"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.token_type[3] = 7; }), "token 3 is 7"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.token_type[3] = 6; }), "Token 3"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.token_type[3] = -1; }), "token 3 is -1"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.tokens[9] = "ab"; }), "9 and 256"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.tokens[9].clear(); }), "Token 9"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.tokens[9] = "zz"; }), "the byte 9"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.tokens[9].assign(kTokenBytesMax + 1, 'a'); }), "65537"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.merges[1] = "abc"; }), "Merge 1"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.merges[1] = "a  b"; }), "Merge 1"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.merges[1] = "a "; }), "Merge 1"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.merges[1] = "a d"; }), "'ad'"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.merges[1] = "a b"; }), "second time"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.eos_token_id = 261; }), "eos_token_id is 261"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.bos_token_id = ~0ull; }), "bos_token_id"));
    EXPECT_TRUE(says(error([](Gguf& g) { g.add_bos_token = true; }), "bos"));
    EXPECT_EQ(error([](Gguf&) {}), "");
}

TEST(Vocabulary, a_merge_that_would_make_an_added_token_is_an_error) {
    const auto error = gguf_error_after([](GgufVocabulary& g) { g.token_type[257] = 3; });
    EXPECT_TRUE(says(error, "'abc', which is no normal token"));
}

TEST(Vocabulary, the_config_names_tokens_and_the_chat_template) {
    const std::string config =
        R"({"eos_token": {"content": "<|im_end|>"}, "pad_token": "<|endoftext|>",)"
        R"( "bos_token": null, "add_bos_token": false,)"
        R"( "chat_template": [{"name": "tool", "template": "t"},)"
        R"( {"name": "default", "template": "d"}]})";
    const auto vocabulary = vocabulary_from_json(read_data("tokenizer.json"), config);
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    EXPECT_EQ(vocabulary->eos_id, fixture_tokenizer().find("<|im_end|>"));
    EXPECT_EQ(vocabulary->pad_id, fixture_tokenizer().find("<|endoftext|>"));
    EXPECT_FALSE(vocabulary->bos_id.has_value());
    EXPECT_FALSE(vocabulary->add_bos);
    EXPECT_EQ(vocabulary->chat_template, "d");
    EXPECT_TRUE(says(error_after([](Json&) {}, R"({"eos_token": "</s>"})"), "</s>"));
    EXPECT_TRUE(says(error_after([](Json&) {}, "[1]"), "tokenizer_config.json"));
}

TEST(Vocabulary, ids_without_a_token_are_unused) {
    Json json = small_json();
    json["added_tokens"][0]["id"] = 4000;
    const auto vocabulary = vocabulary_from_json(json.dump(), "");
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    ASSERT_EQ(vocabulary->tokens.size(), 4001u);
    EXPECT_EQ(vocabulary->kinds[280], TokenKind::unused);
    EXPECT_EQ(vocabulary->kinds[4000], TokenKind::control);
    EXPECT_TRUE(
        says(error_after([](Json& j) { j["added_tokens"][0]["id"] = 2000000; }), "have no token"));
}

TEST(Vocabulary, merges_may_be_strings_or_pairs) {
    Json json = small_json();
    for (Json& merge : json["model"]["merges"]) {
        if (merge.is_array()) {
            merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
        } else {
            const std::string text = merge;
            merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
        }
    }
    const auto vocabulary = vocabulary_from_json(json.dump(), "");
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.error().message;
    EXPECT_EQ(vocabulary->merges, vocabulary_from_json(small_json().dump(), "")->merges);
}

TEST(Vocabulary, the_normalizer_is_read) {
    Json json = small_json();
    json["normalizer"] = nullptr;
    EXPECT_FALSE(vocabulary_from_json(json.dump(), "")->nfc);
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
    EXPECT_TRUE(vocabulary_from_json(json.dump(), "")->nfc);
}

TEST(Vocabulary, a_tokenizer_json_of_another_kind_is_an_error) {
    const auto error = [](const std::function<void(Json&)>& change) { return error_after(change); };
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["type"] = "WordPiece"; }), "WordPiece"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["dropout"] = 0.1; }), "0.1"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["ignore_merges"] = true; }), "ignore_merges"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }), "</w>"));
    EXPECT_TRUE(says(error([](Json& j) { j["normalizer"]["type"] = "NFKC"; }), "NFKC"));
    EXPECT_TRUE(says(error([](Json& j) { j["decoder"] = nullptr; }), "decoder"));
    EXPECT_TRUE(says(error([](Json& j) { j["post_processor"]["type"] = "TemplateProcessing"; }),
                     "TemplateProcessing"));
    EXPECT_TRUE(
        says(error([](Json& j) { j["pre_tokenizer"]["type"] = "Metaspace"; }), "Metaspace"));
    EXPECT_TRUE(says(
        error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "a+"; }),
        "a+"));
    EXPECT_TRUE(
        says(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed"; }),
             "Removed"));
    EXPECT_TRUE(
        says(error([](Json& j) { j["pre_tokenizer"]["pretokenizers"][1]["use_regex"] = true; }),
             "use_regex"));
    EXPECT_TRUE(says(error([](Json& j) { j["added_tokens"][0]["lstrip"] = true; }), "lstrip"));
    EXPECT_TRUE(
        says(error([](Json& j) { j["added_tokens"][0]["single_word"] = true; }), "single_word"));
}

TEST(Vocabulary, ids_and_merges_that_contradict_each_other_are_errors) {
    const auto error = [](const std::function<void(Json&)>& change) { return error_after(change); };
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"]["!"] = 5; }), "both have the id 5"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"]["!"] = -1; }), "-1"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"]["!"] = 1e300; }), "1e+300"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"]["!"] = "x"; }), "\"x\""));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"]["!"] = 1 << 21; }), "2097152"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"] = {1}; }), "a list"));
    EXPECT_TRUE(says(error([](Json& j) { j["added_tokens"][0]["id"] = 0; }), "both have the id 0"));
    EXPECT_TRUE(says(error([](Json& j) { j["added_tokens"][0]["content"] = "!"; }), "'!'"));
    EXPECT_TRUE(says(error([](Json& j) { j["added_tokens"][0]["content"] = ""; }), "content"));
    EXPECT_TRUE(says(error([](Json& j) { j["added_tokens"] = 3; }), "added_tokens is 3"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["merges"][0] = {"a"}; }), "merge 0"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["merges"][0] = "x"; }), "Merge 0"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"].erase("merges"); }), "model.merges"));
    EXPECT_TRUE(says(error([](Json& j) { j["model"]["vocab"].erase("in"); }), "'in'"));
}

TEST(Vocabulary, text_that_is_not_a_json_object_is_an_error) {
    for (const char* text : {"", "[]", "null", "{", "\xFF", "{}", "{\"model\": []}"}) {
        EXPECT_FALSE(vocabulary_from_json(text, "").ok()) << text;
    }
    const std::string deep(20000, '[');
    EXPECT_FALSE(vocabulary_from_json(deep, "").ok());
    EXPECT_FALSE(vocabulary_from_json("{\"a\":" + deep + std::string(20000, ']') + "}", "").ok());
}

TEST(Vocabulary, the_byte_alphabet_is_that_of_gpt2) {
    EXPECT_EQ(byte_spelling(' '), "Ġ");
    EXPECT_EQ(byte_spelling('\n'), "Ċ");
    EXPECT_EQ(byte_spelling('a'), "a");
    EXPECT_EQ(byte_spelling(0xAD), "Ń");
    EXPECT_EQ(byte_spelling(0xE9), "é");
    for (int byte = 0; byte < 256; ++byte) {
        const auto value = static_cast<std::uint8_t>(byte);
        EXPECT_EQ(spelled_bytes(byte_spelling(value)), std::string(1, static_cast<char>(value)));
    }
    EXPECT_FALSE(spelled_bytes("a b").has_value());
    EXPECT_FALSE(spelled_bytes("漢").has_value());
}

}  // namespace
}  // namespace strata
