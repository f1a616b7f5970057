// What an engine makes of a model's file: text keys of any type, and sets whose parts hold what
// decides about the others.
#include <gtest/gtest.h>

#include "engine/model_text.h"
#include "gguf/writer.h"
#include "tests/model/tiny_target.h"

namespace strata::test {
namespace {

using gguf::Value;

class ModelFile : public ::testing::Test {
  protected:
    ModelFile() : file_(gguf::File::open(target_.path()).value()) {}

    // Writes the tensors that `take` names, after metadata that is `writer`'s.
    std::string write(const std::string& name, gguf::Writer& writer,
                      const std::function<bool(const std::string&)>& take) {
        std::vector<const gguf::Tensor*> taken;
        for (const gguf::Tensor& tensor : file_.tensors()) {
            if (take(tensor.name)) taken.push_back(&tensor);
        }
        for (const gguf::Tensor* tensor : taken) {
            EXPECT_TRUE(writer.add_tensor(tensor->name, tensor->type, tensor->shape).ok());
        }
        const std::string path = folder_ / name;
        EXPECT_TRUE(writer.begin(path).ok());
        for (const gguf::Tensor* tensor : taken) {
            EXPECT_TRUE(writer.write_tensor_data(tensor->data).ok());
        }
        EXPECT_TRUE(writer.commit().ok());
        return path;
    }

    void set_metadata(gguf::Writer& writer) const {
        for (const auto& [key, value] : file_.metadata()) writer.set(key, value);
    }

    static std::vector<float> logits(const std::string& path) {
        const auto engine = Engine::load({.model = path}).value();
        std::vector<float> all;
        const Status run =
            engine->logits({.tokens = {1, 2, 3, 300}}, [&](std::span<const float> rows) -> Status {
                all.insert(all.end(), rows.begin(), rows.end());
                return Ok{};
            });
        EXPECT_TRUE(run.ok());
        return all;
    }

    TinyTarget target_;
    TempDir folder_;
    gguf::File file_;
};

// GGUF-04
TEST_F(ModelFile, a_head_alone_in_the_last_part_is_the_models_head) {
    const std::string head = "output.weight";
    const auto all = static_cast<std::int32_t>(file_.tensors().size());
    const auto part = [&](int number, const std::function<bool(const std::string&)>& take) {
        gguf::Writer writer;
        if (number == 0) set_metadata(writer);
        writer.set("split.no", Value::of(static_cast<std::uint16_t>(number)));
        writer.set("split.count", Value::of(std::uint16_t{3}));
        writer.set("split.tensors.count", Value::of(all));
        return write("m-0000" + std::to_string(number + 1) + "-of-00003.gguf", writer, take);
    };
    const auto attends = [](const std::string& name) { return name.find("attn") < name.size(); };
    part(0, [&](const std::string& name) { return name != head && !attends(name); });
    part(1, attends);
    const std::string last = part(2, [&](const std::string& name) { return name == head; });
    const std::vector<float> whole = logits(target_.path());
    EXPECT_EQ(logits(last), whole);
    gguf::Writer tied;
    set_metadata(tied);
    EXPECT_NE(logits(write("tied.gguf", tied, [&](auto& name) { return name != head; })), whole);
}

// GGUF-09: the keys that tokenizer, end tokens and sampling are read from. Those of the
// configuration are tests/model/config_test's.
TEST_F(ModelFile, each_text_key_of_each_other_type_is_an_error) {
    const std::pair<const char*, Value> kinds[] = {
        {"string", Value::string("gpt2")},
        {"integer", Value::of<std::int64_t>(2)},
        {"float", Value::of(0.5)},
        {"bool", Value::of(true)},
        {"strings", Value::array(std::vector<std::string>{"a", "b"})},
        {"integers", Value::array(std::vector<std::int32_t>{1, 3})},
        {"floats", Value::array(std::vector<float>{0.5f})},
    };
    // With what each may be; a number may be of any type.
    const std::pair<std::string, std::vector<std::string>> keys[] = {
        {"tokenizer.ggml.model", {"string"}},
        {"tokenizer.ggml.pre", {"string"}},
        {"tokenizer.ggml.tokens", {"strings"}},
        {"tokenizer.ggml.merges", {"strings"}},
        {"tokenizer.ggml.token_type", {"integers"}},
        {"tokenizer.chat_template", {"string"}},
        {"tokenizer.ggml.bos_token_id", {"integer"}},
        {"tokenizer.ggml.eos_token_id", {"integer"}},
        {"tokenizer.ggml.eot_token_id", {"integer"}},
        {"tokenizer.ggml.eom_token_id", {"integer"}},
        {"tokenizer.ggml.eos_token_ids", {"integers"}},
        {"tokenizer.ggml.padding_token_id", {"integer"}},
        {"tokenizer.ggml.unknown_token_id", {"integer"}},
        {"tokenizer.ggml.add_bos_token", {"bool"}},
        {"general.sampling.temp", {"float", "integer"}},
        {"general.sampling.top_k", {"integer"}},
        {"general.sampling.top_p", {"float", "integer"}},
        {"general.sampling.min_p", {"float", "integer"}},
        {"general.sampling.penalty_repeat", {"float", "integer"}},
    };
    for (const auto& [key, allowed] : keys) {
        for (const auto& [kind, value] : kinds) {
            if (std::ranges::find(allowed, kind) != allowed.end()) continue;
            gguf::Writer writer;
            set_metadata(writer);
            writer.set(key, value);
            const auto file = gguf::File::open(
                write("keys.gguf", writer, [](const std::string&) { return false; }));
            ASSERT_TRUE(file.ok()) << file.error().message;
            std::string why;
            if (auto t = tokenizer_of(*file, 331); !t.ok()) why += t.error().message;
            if (auto t = end_tokens_of(*file, 331); !t.ok()) why += t.error().message;
            if (auto t = sampling_of(*file); !t.ok()) why += t.error().message;
            EXPECT_NE(why.find("'" + key + "'"), std::string::npos) << key << kind << why;
        }
    }
}

// SPEC-25: a draft's ids must mean what the model's do; one list may be padded further.
TEST_F(ModelFile, guesses_in_another_vocabulary_are_refused_by_the_first_token_that_differs) {
    const char* key = "tokenizer.ggml.tokens";
    const auto with = [&](const std::vector<std::string>& tokens) {
        gguf::Writer writer;
        set_metadata(writer);
        writer.set(key, Value::array(tokens));
        return Engine::load({.model = target_.path(),
                             .mtp = write("mtp.gguf", writer, [](auto&) { return true; })});
    };
    const auto named = gguf::require_strings(file_, key).value();
    const std::vector<std::string> ours(named.begin(), named.end());
    std::vector<std::string> theirs = ours;
    theirs.pop_back();
    EXPECT_TRUE(with(theirs).ok());
    theirs = ours;
    theirs.push_back("[PAD]");
    EXPECT_TRUE(with(theirs).ok());
    theirs = ours;
    std::swap(theirs[40], theirs[41]);
    const auto refused = with(theirs);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("was made for another tokenizer: token 40 is '" +
                                           ours[41] + "', wanted the model's '" + ours[40] + "'"),
              std::string::npos)
        << refused.error().message;
}

}  // namespace
}  // namespace strata::test
