#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/convert/convert_case.h"

namespace strata::test {
namespace {

// Another expert and layers 2 and 3 stand for these.
bool is_repeated(const std::string& name) {
    return name.starts_with("model.layers.0.") || name.starts_with("model.layers.1.") ||
           (name.find(".experts.") != std::string::npos &&
            name.find(".experts.3.") == std::string::npos);
}

class ConvertRefusal : public testing::Test {
  protected:
    HfCheckpoint checkpoint_ = HfCheckpoint::random(small_config());
};

TEST_F(ConvertRefusal, any_tensor_that_is_missing_is_named) {
    for (const auto& [name, tensor] : checkpoint_.tensors) {
        // Without the embedding there is no model to name a tensor of.
        if (is_repeated(name) || name == "model.embed_tokens.weight") continue;
        HfCheckpoint lacking = checkpoint_;
        lacking.tensors.erase(name);
        const std::string sentence = ConvertCase(lacking).error();
        const bool shard = name.find(".shard_") != std::string::npos;
        EXPECT_TRUE(says(sentence, shard ? "ngram_embedding" : name));
        EXPECT_TRUE(says(sentence, "wanted"));
    }
}

TEST_F(ConvertRefusal, any_tensor_of_another_shape_is_named_with_both_shapes) {
    for (const auto& [name, tensor] : checkpoint_.tensors) {
        if (is_repeated(name) || name.find(".shard_") != std::string::npos) continue;
        HfCheckpoint changed = checkpoint_;
        HfTensor& odd = changed.tensors[name];
        odd.shape[0] += 1;
        odd.bytes += std::string(odd.bytes.size() / tensor.shape[0], 'x');
        const std::string sentence = ConvertCase(changed).error();
        EXPECT_TRUE(says(sentence, "'" + name + "' has the shape ["));
        EXPECT_TRUE(says(sentence, "wanted ["));
    }
}

TEST_F(ConvertRefusal, tensors_of_a_quantized_checkpoint_are_refused_by_name) {
    HfTensor& tensor = checkpoint_.tensors["model.layers.0.mlp.experts.3.up_proj.weight"];
    tensor.dtype = "U8";
    tensor.shape[1] *= 2;
    const std::string sentence = ConvertCase(checkpoint_).error();
    EXPECT_TRUE(says(sentence, "experts.3.up_proj.weight' is of type U8, wanted F32, F16 or BF16"));
}

TEST_F(ConvertRefusal, a_tensor_that_is_no_part_of_the_model_is_named) {
    for (const char* name : {"model.layers.4.mlp.gate.weight", "model.norm.weight",
                             "model.layers.0.self_attn.q_proj.weight", "mtp.norm.weight",
                             "model.layers.2.ple.ple_embedding.ngram_embedding.shard_7.weight"}) {
        HfCheckpoint more = checkpoint_;
        more.tensors[name] = bf16_tensor({1, 5}, {1, 2, 3, 4, 5});
        EXPECT_TRUE(says(ConvertCase(more).error(),
                         name[0] == 'm' && std::string(name).ends_with("shard_7.weight")
                             ? "ngram_embedding.shard_2.weight"
                             : name));
    }
    checkpoint_.tensors["model.layers.0.rotary_emb.inv_freq"] = bf16_tensor({1}, {1});
    checkpoint_.tensors["model.visual.blocks.0.attn.qkv.weight"] = bf16_tensor({1}, {1});
    ConvertCase(checkpoint_).file();
}

TEST_F(ConvertRefusal, hash_tensors_must_be_whole_integers_of_the_right_count) {
    const std::string stem = "model.layers.2.ple.ple_embedding.";
    HfCheckpoint changed = checkpoint_;
    changed.tensors[stem + "layer_multipliers"] = f32_tensor({3}, {1, 2, 3});
    EXPECT_TRUE(says(ConvertCase(changed).error(), "layer_multipliers"));
    changed = checkpoint_;
    changed.tensors[stem + "ngram_heads_vocab_sizes"].bytes.replace(0, 8, 8, '\xff');
    EXPECT_TRUE(says(ConvertCase(changed).error(), "holds -1"));
    changed = checkpoint_;
    changed.tensors[stem + "ngram_heads_vocab_sizes"].bytes.replace(0, 8, 8, '\0');
    EXPECT_TRUE(says(ConvertCase(changed).error(), "head 0 has 0 rows"));
    changed = checkpoint_;
    changed.tensors[stem + "layer_multipliers"].bytes[7] = '\x7f';
    EXPECT_TRUE(says(ConvertCase(changed).error(), "multiplier"));
    changed = checkpoint_;
    changed.tensors[stem + "ngram_heads_offsets"].bytes[2] = '\x01';
    EXPECT_TRUE(says(ConvertCase(changed).error(), "rows in 2 tensors, wanted at least"));
}

TEST_F(ConvertRefusal, a_value_that_is_not_finite_is_refused) {
    HfTensor& tensor = checkpoint_.tensors["model.layers.0.linear_attn.A_log"];
    for (const float value : {std::numeric_limits<float>::infinity(), 200.0F, std::nanf("")}) {
        std::vector<float> values = tensor.floats();
        values[4] = value;
        tensor = f32_tensor(tensor.shape, values);
        const ConvertCase made(checkpoint_);
        const std::string sentence = made.error();
        EXPECT_TRUE(sentence.starts_with("'" + made.options().directory + "': "));
        EXPECT_TRUE(says(sentence, "model.layers.0.linear_attn.A_log"));
        EXPECT_TRUE(says(sentence, "blk.0.ssm_a"));
    }
}

TEST_F(ConvertRefusal, a_promised_mtp_layer_without_tensors_says_how_to_go_on) {
    std::erase_if(checkpoint_.tensors,
                  [](const auto& entry) { return entry.first.starts_with("mtp."); });
    const ConvertCase made(checkpoint_);
    EXPECT_TRUE(says(made.error(), "--no-mtp"));
    convert::ConvertOptions options = made.options();
    options.mtp = false;
    made.file(options);
}

TEST_F(ConvertRefusal, a_lone_mtp_layer_is_not_left_out_and_fits_its_target) {
    const ConvertCase whole(checkpoint_);
    whole.file();
    std::erase_if(checkpoint_.tensors,
                  [](const auto& entry) { return !entry.first.starts_with("mtp."); });
    convert::ConvertOptions options;
    {
        const ConvertCase alone(checkpoint_);
        options = alone.options();
        options.mtp = false;
        EXPECT_TRUE(says(alone.error(options), "--no-mtp"));
        options = alone.options();
        options.types.head = quant::Type::f16;
        EXPECT_TRUE(says(alone.error(options), "a type for the head was given (F16), and an MTP"));
        options = alone.options();
        options.target = whole.output();
        alone.file(options);
    }
    checkpoint_.config["num_hidden_layers"] = 2;
    checkpoint_.config["layer_types"] = {"linear_attention", "full_attention"};
    checkpoint_.config["ple_layer_ids"] = {2};
    const ConvertCase shorter(checkpoint_);
    options = shorter.options();
    options.target = whole.output();
    EXPECT_TRUE(says(shorter.error(options), "number of layers before it is 2"));
    checkpoint_.tensors.clear();
    checkpoint_.tensors["weight"] = bf16_tensor({1}, {1});
    EXPECT_TRUE(says(ConvertCase(checkpoint_).error(), "embed_tokens.weight"));
}

TEST_F(ConvertRefusal, a_directory_without_tensors_and_a_missing_one_are_errors) {
    const ConvertCase made(checkpoint_);
    std::filesystem::remove(made.input() + "/model.safetensors");
    EXPECT_TRUE(says(made.error(), made.input()));
    convert::ConvertOptions options = made.options();
    options.directory += "/none";
    EXPECT_TRUE(says(made.error(options), "/none"));
}

TEST_F(ConvertRefusal, a_checkpoint_cut_at_any_place_is_an_error) {
    const ConvertCase made(checkpoint_);
    const std::string path = made.input() + "/model.safetensors";
    const std::string whole = read_file(path);
    std::size_t step = 1;
    for (std::size_t size = 0; size < whole.size(); size += step) {
        write_file(path, whole.substr(0, size));
        ASSERT_TRUE(says(made.error(), "model.safetensors")) << size;
        step = size < 32 ? 1 : whole.size() / 41;
    }
    write_file(path, whole.substr(0, whole.size() - 1));
    EXPECT_TRUE(says(made.error(), "model.safetensors"));
}

TEST_F(ConvertRefusal, an_output_that_cannot_be_written_is_an_error) {
    const ConvertCase made(checkpoint_);
    convert::ConvertOptions options = made.options();
    options.output = made.input() + "/none/out.gguf";
    EXPECT_TRUE(says(made.error(options), "/none/out.gguf"));
}

TEST_F(ConvertRefusal, a_failed_conversion_leaves_the_file_before_it_as_it_was) {
    const ConvertCase made(checkpoint_);
    const std::string before = made.bytes();
    // The last tensor of the list is the n-gram table's, so all others have been written by then.
    HfTensor& tensor =
        checkpoint_.tensors["model.layers.2.ple.ple_embedding.ngram_embedding.shard_1.weight"];
    std::vector<float> values = tensor.floats();
    values.back() = std::numeric_limits<float>::infinity();
    tensor = f32_tensor(tensor.shape, values);
    checkpoint_.write(made.input());
    const Status status = convert_checkpoint(made.options());
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(says(status.error().message, "per_layer_token_embd.weight"));
    EXPECT_TRUE(read_file(made.output()) == before);
}

}  // namespace
}  // namespace strata::test
