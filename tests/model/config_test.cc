// Model files that lack something or say it wrongly are errors, whatever the key and its type.

#include <gtest/gtest.h>

#include <functional>

#include "gguf/writer.h"
#include "model/tensors.h"
#include "tests/model/tiny_target.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using gguf::Value;

// Copies a GGUF file, each key and tensor as `keys` and `tensors` will have it.
struct Edit {
    // Returns the value to write, or nothing to leave the key out.
    std::function<std::optional<Value>(const std::string&, const Value&)> keys =
        [](const std::string&, const Value& value) { return std::optional<Value>(value); };
    // Changes the name, type or shape; false leaves the tensor out. Data becomes zeros.
    std::function<bool(std::string& name, quant::Type& type, std::vector<std::uint64_t>& shape)>
        tensors = [](std::string&, quant::Type&, std::vector<std::uint64_t>&) { return true; };
    std::vector<std::pair<std::string, Value>> more;  // keys that the file has not
};

class Config : public ::testing::Test {
  protected:
    Config() : file_(gguf::File::open(target_.path()).value()) {}

    // Loads the edited copy as a model; the error's sentence, or an empty string.
    std::string load(const Edit& edit) {
        gguf::Writer writer;
        for (const auto& [key, value] : file_.metadata()) {
            if (auto changed = edit.keys(key, value)) writer.set(key, std::move(*changed));
        }
        for (const auto& [key, value] : edit.more) writer.set(key, value);
        std::vector<std::size_t> bytes;
        for (const gguf::Tensor& tensor : file_.tensors()) {
            std::string name = tensor.name;
            quant::Type type = tensor.type;
            auto shape = tensor.shape;
            if (!edit.tensors(name, type, shape)) continue;
            EXPECT_TRUE(writer.add_tensor(name, type, shape).ok());
            std::size_t size = *quant::row_bytes(type, shape[0]);
            for (std::size_t i = 1; i < shape.size(); ++i) size *= shape[i];
            bytes.push_back(size);
        }
        const std::string path = folder_ / "edited.gguf";
        EXPECT_TRUE(writer.begin(path).ok());
        for (const std::size_t size : bytes) {
            EXPECT_TRUE(writer.write_tensor_data(std::vector<std::byte>(size)).ok());
        }
        EXPECT_TRUE(writer.commit().ok());
        Backend backend = make_cpu_backend({1}).value();
        auto file = gguf::File::open(path);
        if (!file.ok()) return file.error().message;
        const auto loaded =
            model::Target::load(std::move(file).value(), *backend.device, backend.ops, 16);
        return loaded.ok() ? "" : loaded.error().message;
    }

    std::string with_key(const std::string& key, std::optional<Value> value) {
        Edit edit;
        edit.keys = [&](const std::string& k, const Value& v) {
            return k == key ? value : std::optional<Value>(v);
        };
        return load(edit);
    }

    TinyTarget target_;
    TempDir folder_;
    gguf::File file_;
};

bool names(const std::string& message, const std::string& part) {
    return message.find(part) != std::string::npos;
}

TEST_F(Config, an_unchanged_copy_loads) { EXPECT_EQ(load({}), ""); }

// GGUF-09
TEST_F(Config, each_key_of_each_other_type_is_an_error_or_harmless) {
    const std::vector<Value> others = {
        Value::of<std::uint8_t>(200),
        Value::of<std::int32_t>(-5),
        Value::of<std::uint64_t>(~std::uint64_t{0}),
        Value::of<std::int64_t>(std::numeric_limits<std::int64_t>::min()),
        Value::of(std::numeric_limits<float>::quiet_NaN()),
        Value::of(1e300),
        Value::of(true),
        Value::string("four"),
        Value::array(std::vector<std::string>{"a", "b"}),
        Value::array(std::vector<std::uint32_t>{}),
        Value::array(std::vector<std::int32_t>{-1, 0, 7}),
        Value::array(std::vector<float>{0.5f}),
    };
    int refused = 0;
    for (const auto& [key, value] : file_.metadata()) {
        if (key.rfind("qwen4exp.", 0) != 0 && key != "general.architecture") continue;
        for (const Value& other : others) {
            const std::string message = with_key(key, other);
            if (message.empty()) continue;
            ++refused;
            EXPECT_TRUE(names(message, "edited.gguf")) << key << ": " << message;
        }
    }
    EXPECT_GT(refused, 300);
}

TEST_F(Config, missing_keys_are_named) {
    for (const std::string key :
         {"general.architecture", "qwen4exp.block_count", "qwen4exp.embedding_length",
          "qwen4exp.attention.head_count", "qwen4exp.rope.freq_base", "qwen4exp.ssm.state_size",
          "qwen4exp.hyper_connection.low_rank", "qwen4exp.expert_count",
          "qwen4exp.attention.indexer.top_k", "qwen4exp.ple.layer_multipliers"}) {
        EXPECT_TRUE(names(with_key(key, std::nullopt), key)) << key;
    }
}

TEST_F(Config, another_architecture_is_named) {
    EXPECT_TRUE(names(with_key("general.architecture", Value::string("llama")), "'llama'"));
}

TEST_F(Config, a_scaled_rope_is_refused_rather_than_read_unscaled) {
    const auto scaled = [&](const char* type) {
        Edit edit;
        edit.more.emplace_back("qwen4exp.rope.scaling.type", Value::string(type));
        return load(edit);
    };
    EXPECT_EQ(scaled("none"), "");
    EXPECT_TRUE(names(scaled("yarn"), "rope.scaling.type is 'yarn', wanted 'none'"));
}

TEST_F(Config, contradictions_say_both_numbers) {
    const auto message = with_key("qwen4exp.attention.head_count", Value::of<std::uint32_t>(7));
    EXPECT_TRUE(names(message, "7 heads and 2 key-value heads")) << message;
    const auto inner = with_key("qwen4exp.ssm.inner_size", Value::of<std::uint32_t>(95));
    EXPECT_TRUE(names(inner, "95")) << inner;
    EXPECT_TRUE(names(inner, "96")) << inner;
}

TEST_F(Config, a_factor_that_does_not_fit_is_refused_rather_than_left_out) {
    const auto with_factors = [&](const std::string& stem, quant::Type matrix, std::uint64_t count,
                                  quant::Type factors = quant::Type::f32) {
        Edit edit;
        edit.tensors = [&](std::string& name, quant::Type& type,
                           std::vector<std::uint64_t>& shape) {
            if (name == stem + ".weight") type = matrix;
            if (name != "output.weight") return true;  // without which the embedding is the head
            name = stem + ".scale";
            type = factors;
            shape = {count};
            return true;
        };
        return load(edit);
    };
    const quant::Type nvfp4 = quant::Type::nvfp4;
    const std::string experts = "blk.0.ffn_down_exps";
    EXPECT_EQ(with_factors(experts, nvfp4, 16), "");
    EXPECT_EQ(with_factors("blk.0.attn_qkv", nvfp4, 1), "");
    const std::string other = with_factors(experts, quant::Type::bf16, 16);
    EXPECT_TRUE(names(other, experts + ".weight") && names(other, "BF16")) << other;
    const std::string few = with_factors(experts, nvfp4, 1);
    EXPECT_TRUE(names(few, experts + ".scale") && names(few, "wanted 16")) << few;
    const std::string many = with_factors("blk.0.attn_qkv", nvfp4, 16);
    EXPECT_TRUE(names(many, "wanted 1 of F32")) << many;
    const std::string half = with_factors(experts, nvfp4, 16, quant::Type::f16);
    EXPECT_TRUE(names(half, "F16")) << half;
    const std::string table = with_factors("token_embd", nvfp4, 1);
    EXPECT_TRUE(names(table, "token_embd.scale")) << table;
}

TEST_F(Config, a_context_or_a_width_that_no_kernel_takes_is_refused) {
    const auto context =
        with_key("qwen4exp.context_length", Value::of<std::uint64_t>(std::uint64_t{1} << 31));
    EXPECT_TRUE(names(context, "2147483647")) << context;
    const auto heads =
        with_key("qwen4exp.attention.key_length", Value::of<std::uint32_t>(1u << 24));
    EXPECT_FALSE(heads.empty());
}

// GGUF-03, GGUF-07
TEST_F(Config, each_missing_or_misshapen_tensor_is_named) {
    for (const model::TensorSpec& spec : model::tensor_list(target_->config())) {
        Edit missing;
        missing.tensors = [&](std::string& name, auto&, auto&) { return name != spec.name; };
        const std::string message = load(missing);
        if (spec.presence == model::Presence::optional) {
            EXPECT_EQ(message, "") << spec.name;
        } else {
            EXPECT_TRUE(names(message, spec.name)) << spec.name << ": " << message;
        }
        Edit misshapen;
        misshapen.tensors = [&](std::string& name, auto&, std::vector<std::uint64_t>& shape) {
            if (name == spec.name) shape.back() -= 1;
            return true;
        };
        const std::string shaped = load(misshapen);
        EXPECT_FALSE(shaped.empty()) << spec.name;
    }
}

TEST_F(Config, a_matrix_of_whole_numbers_is_refused_by_name) {
    Edit edit;
    edit.tensors = [](std::string& name, quant::Type& type, auto&) {
        if (name == "blk.0.attn_qkv.weight") type = quant::Type::i64;
        return true;
    };
    EXPECT_TRUE(names(load(edit), "blk.0.attn_qkv.weight"));
}

TEST_F(Config, experts_may_be_fused_and_the_head_may_be_the_embedding) {
    for (const std::uint64_t matrices : {1, 2, 3}) {
        Edit edit;
        edit.tensors = [&](std::string& name, auto&, std::vector<std::uint64_t>& shape) {
            if (names(name, "ffn_up_exps") || name == "output.weight") return false;
            const std::size_t at = name.find("ffn_gate_exps");
            if (at == std::string::npos) return true;
            name.replace(at, 13, "ffn_gate_up_exps");
            shape[1] *= matrices;
            return true;
        };
        const std::string message = load(edit);
        if (matrices == 2) {
            EXPECT_EQ(message, "");
        } else {
            EXPECT_TRUE(names(message, "blk.0.ffn_gate_up_exps.weight' has the shape")) << message;
        }
    }
}

}  // namespace
}  // namespace strata::test
