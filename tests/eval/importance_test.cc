// The squares of what matrices are multiplied with, against what the file's tensors say they are.
#include <gtest/gtest.h>

#include <cmath>

#include "gguf/reader.h"
#include "strata/eval.h"
#include "strata/synth.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

class Importances : public ::testing::Test {
  protected:
    Importances() {
        SynthRequest synth;
        synth.preset = "tiny";
        synth.mtp = true;
        synth.output = path_;
        STRATA_CHECK(synthesize_model(synth).ok());
        EngineOptions options;
        options.model = path_;
        options.threads = 1;
        options.chunk = 7;
        engine_ = Engine::load(options).value();
    }
    InputSums sums() {
        InputSums found;
        const Status status = engine_->add_input_sums(tokens_, found);
        EXPECT_TRUE(status.ok());
        return found;
    }
    std::vector<float> values(const std::string& name) const {
        const gguf::File file = gguf::File::open(path_).value();
        const gguf::Tensor& tensor = *file.find_tensor(name);
        std::vector<float> out(tensor.elements());
        quant::info(tensor.type)
            .decode(tensor.data.data(), out.data(), static_cast<std::int64_t>(out.size()));
        return out;
    }

    test::TempDir folder_;
    std::string path_ = folder_ / "m.gguf";
    std::unique_ptr<Engine> engine_;
    std::vector<std::int32_t> tokens_ = {5, 80, 3, 99, 5, 17, 42, 61, 2, 30};
};

// The MTP layer's fusion reads the normed embedding of each token but the first.
TEST_F(Importances, are_the_squares_of_the_inputs_summed_over_the_text) {
    const InputSums found = sums();
    const std::string block = "blk." + std::to_string(engine_->info().layers) + ".nextn.";
    const InputSum& fuse = found.at(block + "eh_proj.weight");
    const auto embedding = values("token_embd.weight");
    const auto gain = values(block + "enorm.weight");
    const auto width = static_cast<std::size_t>(engine_->info().hidden);
    ASSERT_EQ(fuse.width, 2 * engine_->info().hidden);
    EXPECT_EQ(fuse.counts, std::vector<float>{9});
    for (std::size_t c = 0; c < width; ++c) {
        double wanted = 0;
        for (std::size_t i = 1; i < tokens_.size(); ++i) {
            const float* row = embedding.data() + static_cast<std::size_t>(tokens_[i]) * width;
            double squares = 0;
            for (std::size_t j = 0; j < width; ++j) squares += double{row[j]} * double{row[j]};
            wanted += std::pow(double{row[c]} * double{gain[c]}, 2) /
                      (squares / static_cast<double>(width) + 1e-6);
        }
        EXPECT_NEAR(fuse.squares[c], wanted, 1e-5 * wanted + 1e-9) << c;
    }
    // The other half reads four normed streams a token, whose mean square is the gain's.
    const auto hidden_gain = values(block + "hnorm.weight");
    double wanted = 0;
    for (const float g : hidden_gain) wanted += double{g} * double{g} / 4;
    double all = 0;
    for (std::size_t c = width; c < 2 * width; ++c) all += fuse.squares[c];
    EXPECT_NEAR(all / 9, wanted, 0.2 * wanted);
}

TEST_F(Importances, each_expert_has_its_own_rows_and_together_they_have_every_row_k_times) {
    const InputSums found = sums();
    const InputSum& shared = found.at("blk.0.ffn_gate_shexp.weight");
    const InputSum& gate = found.at("blk.0.ffn_gate_exps.weight");
    const InputSum& up = found.at("blk.0.ffn_up_exps.weight");
    EXPECT_EQ(gate.squares, up.squares);
    EXPECT_EQ(shared.counts, std::vector<float>{10});
    constexpr double kActive = 4;
    double counts = 0;
    for (const float count : gate.counts) counts += count;
    EXPECT_EQ(counts, 10 * kActive);
    const auto width = static_cast<std::size_t>(gate.width);
    for (std::size_t c = 0; c < width; ++c) {
        double sum = 0;
        for (std::size_t e = 0; e < gate.counts.size(); ++e) sum += gate.squares[e * width + c];
        EXPECT_NEAR(sum, kActive * shared.squares[c], 1e-5 * sum + 1e-9);
    }
    EXPECT_EQ(found.at("blk.0.ffn_down_exps.weight").counts, gate.counts);
}

TEST_F(Importances, are_written_for_every_matrix_and_refused_where_nothing_can_be_read) {
    ImportanceRequest request;
    request.text = "a short text, in windows";
    request.output = folder_ / "importance.gguf";
    request.window = 8;
    const Importance found = gather_importance(*engine_, request).value();
    EXPECT_EQ(found.tokens, 24);
    EXPECT_EQ(found.window, 8);
    const gguf::File file = gguf::File::open(request.output).value();
    EXPECT_EQ(static_cast<std::int64_t>(file.tensors().size()), 2 * found.tensors);
    EXPECT_EQ(file.find("imatrix.chunk_count")->as_uint(), 3u);
    const gguf::Tensor* head = file.find_tensor("output.weight.counts");
    ASSERT_NE(head, nullptr);
    EXPECT_EQ(head->elements(), 1u);
    EXPECT_GE(found.matrices, found.tensors);
    EXPECT_LT(found.matrices_unused, found.matrices);
    InputSums none;
    EXPECT_FALSE(engine_->add_input_sums({}, none).ok());
    request.output = folder_ / "none/importance.gguf";
    EXPECT_FALSE(gather_importance(*engine_, request).ok());
}

}  // namespace
}  // namespace strata
