// The benches at sizes that take no time: that they run, agree with themselves, and count what they
// say.
#include "strata/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "gguf/reader.h"
#include "spec/dflash/config.h"
#include "strata/convert.h"
#include "strata/synth.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

class Bench : public ::testing::Test {
  protected:
    Bench() {
        SynthRequest synth;
        synth.preset = "tiny";
        synth.output = path_;
        synth.mtp = true;
        synth.dflash = draft_;
        STRATA_CHECK(synthesize_model(synth).ok());
    }
    template <typename Request>
    Request request() const {
        Request out;
        out.model.model = path_;
        out.model.threads = 2;
        out.repeats = 2;
        out.small = true;
        return out;
    }
    test::TempDir folder_;
    std::string path_ = folder_ / "m.gguf";
    std::string draft_ = folder_ / "d.gguf";
};

void expect_figure(const WorkFigure& figure) {
    EXPECT_LE(figure.ms.least, figure.ms.median);
    EXPECT_LE(figure.ms.median, figure.ms.most);
    EXPECT_GT(figure.ms.least, 0);
    EXPECT_GT(figure.floor_ms(), 0);
    EXPECT_DOUBLE_EQ(figure.reached(), figure.floor_ms() / figure.ms.median);
    EXPECT_GT(figure.bytes.dense, 0);
    EXPECT_GT(figure.multiply_adds, 0);
}

TEST_F(Bench, windows_of_any_size_compute_the_same_and_share_experts) {
    auto decode = request<DecodeBenchRequest>();
    decode.depth = 5;
    decode.tokens = 8;
    decode.windows = {1, 2, 8};
    const DecodeBench found = bench_decode(decode).value();
    ASSERT_EQ(found.windows.size(), 3u);
    const WorkFigure& one = found.windows[0];
    EXPECT_EQ(one.experts_read, 4);  // the preset's active ones
    for (const WorkFigure& window : found.windows) {
        expect_figure(window);
        EXPECT_EQ(window.checksum, one.checksum);
        EXPECT_EQ(window.top_token, one.top_token);
        EXPECT_GE(window.experts_read, one.experts_read);
        EXPECT_LE(window.experts_read, 4 * static_cast<double>(window.rows));
    }
    decode.one_token = true;
    EXPECT_NE(bench_decode(decode).value().windows[0].checksum, one.checksum);
}

TEST_F(Bench, a_prompt_is_the_same_in_chunks_of_any_size) {
    auto prompt = request<PromptBenchRequest>();
    prompt.tokens = 20;
    const PromptBench whole = bench_prompt(prompt).value();
    expect_figure(whole.prompt);
    EXPECT_EQ(whole.prompt.rows, 20);
    prompt.model.chunk = 7;
    const PromptBench cut = bench_prompt(prompt).value();
    EXPECT_EQ(cut.prompt.checksum, whole.prompt.checksum);
    // Each of its three chunks reads the dense weights.
    EXPECT_DOUBLE_EQ(cut.prompt.bytes.dense, 3 * whole.prompt.bytes.dense);
    EXPECT_EQ(cut.prompt.bytes.head, whole.prompt.bytes.head);
}

double file_bytes(const std::string& path, const std::function<bool(const std::string&)>& wanted) {
    const gguf::File file = gguf::File::open(path).value();
    double bytes = 0;
    for (const gguf::Tensor& tensor : file.tensors()) {
        if (wanted(tensor.name)) bytes += static_cast<double>(tensor.data.size());
    }
    return bytes;
}

TEST_F(Bench, drafts_are_timed_beside_what_they_must_read) {
    auto draft = request<DraftBenchRequest>();
    draft.model.dflash = draft_;
    draft.depth = 9;
    draft.drafts = 3;
    draft.guesses = {1, 2};
    const DraftBench found = bench_draft(draft).value();
    ASSERT_EQ(found.drafts.size(), 4u);
    for (const DraftFigure& figure : found.drafts) {
        EXPECT_LE(figure.ms.least, figure.ms.median);
        EXPECT_GT(figure.ms.least, 0);
        EXPECT_DOUBLE_EQ(figure.floor_ms, 1e3 * figure.bytes.all() / found.machine.read_bytes);
        EXPECT_DOUBLE_EQ(figure.reached(), figure.floor_ms / figure.ms.median);
    }
    const DraftFigure& block = found.drafts[2];
    EXPECT_EQ(block.kind, DraftKind::dflash);
    EXPECT_EQ(block.guesses, 2);
    const double head = file_bytes(path_, [](const auto& name) { return name == "output.weight"; });
    EXPECT_EQ(block.bytes.head, head);
    EXPECT_EQ(block.bytes.dense, file_bytes(draft_, [](const auto& name) {
                  return name != "selector_predecessor.weight" &&
                         name != "selector_successor.weight";
              }));
    // Three drafts of before, and half of those that are timed; F16 keys and values.
    const std::int64_t length = 9 + 3 + 2;
    const auto config = dflash::config_from_gguf(gguf::File::open(draft_).value()).value();
    EXPECT_GT(config.window, length);
    EXPECT_EQ(block.bytes.state,
              static_cast<double>(2 * 2 * config.layers * length * config.kv_width()));
    // A token before and every candidate, for each of two guesses; BF16.
    EXPECT_EQ(block.bytes.rows, 2.0 * (config.candidates + 1) * config.selector_rank * 2);
    EXPECT_NE(block.checksum, found.drafts[0].checksum);
    // A chain reads the layer again for each guess.
    const DraftFigure& chain = found.drafts[3];
    EXPECT_EQ(chain.kind, DraftKind::mtp);
    EXPECT_EQ(chain.bytes.head, 2 * head);
    EXPECT_EQ(chain.bytes.all(), 2 * found.drafts[1].bytes.all());
    // The tiny preset's layer is its fifth; a token has 4 of 16 experts.
    const auto is_expert = [](const std::string& name) {
        return name.find("_exps") != std::string::npos;
    };
    const auto in_layer = [](const std::string& name) { return name.starts_with("blk.4."); };
    const double experts =
        file_bytes(path_, [&](const auto& name) { return in_layer(name) && is_expert(name); });
    EXPECT_DOUBLE_EQ(chain.bytes.experts, 2 * experts * 4 / 16);
    EXPECT_DOUBLE_EQ(chain.bytes.dense, 2 * file_bytes(path_, [&](const auto& name) {
                                            return in_layer(name) && !is_expert(name);
                                        }));
}

DraftBenchRequest shortened(DraftBenchRequest request) {
    request.depth = 5;
    request.drafts = 2;
    request.guesses = {2};
    return request;
}

void expect_same_draft(const DraftFigure& a, const DraftFigure& b) {
    EXPECT_EQ(a.kind, b.kind);
    EXPECT_EQ(a.checksum, b.checksum);
    EXPECT_EQ(a.bytes.experts, b.bytes.experts);
    EXPECT_EQ(a.bytes.head, b.bytes.head);
    EXPECT_EQ(a.bytes.dense, b.bytes.dense);
    EXPECT_EQ(a.bytes.rows, b.bytes.rows);
    EXPECT_EQ(a.bytes.state, b.bytes.state);
}

TEST_F(Bench, an_mtp_layer_in_a_file_of_its_own_or_in_another_models_drafts_as_in_the_models) {
    auto draft = shortened(request<DraftBenchRequest>());
    const DraftBench own = bench_draft(draft).value();
    ASSERT_EQ(own.drafts.size(), 1u);
    QuantizeRequest layer;
    layer.input = path_;
    layer.output = folder_ / "layer.gguf";
    layer.type = kKeepType;
    layer.only_mtp = true;
    ASSERT_TRUE(quantize_model(layer).ok());
    QuantizeRequest rest = layer;
    rest.output = folder_ / "rest.gguf";
    rest.only_mtp = false;
    rest.no_mtp = true;
    ASSERT_TRUE(quantize_model(rest).ok());
    draft.model.model = rest.output;
    for (const std::string& file : {layer.output, path_}) {
        draft.model.mtp = file;
        const DraftBench found = bench_draft(draft).value();
        ASSERT_EQ(found.drafts.size(), 1u);
        expect_same_draft(found.drafts[0], own.drafts[0]);
    }
}

TEST_F(Bench, drafts_with_a_head_of_their_own_read_that_instead) {
    auto draft = shortened(request<DraftBenchRequest>());
    draft.model.dflash = draft_;
    const DraftBench shared = bench_draft(draft).value();
    DraftHeadRequest head;
    head.target = path_;
    for (std::int32_t token = 0; token < 40; ++token) head.vocabulary.push_back(3 * token);
    head.draft = draft_;
    head.output = draft.model.dflash = folder_ / "draft_head.gguf";
    ASSERT_TRUE(add_draft_head(head).ok());
    head.draft = path_;
    head.output = draft.model.mtp = folder_ / "mtp_head.gguf";
    ASSERT_TRUE(add_mtp_head(head).ok());
    const DraftBench found = bench_draft(draft).value();
    ASSERT_EQ(found.drafts.size(), 2u);
    const std::int64_t hidden = gguf::File::open(path_)->find_tensor("output.weight")->shape[0];
    // 40 rows of Q8_0, which is 34 bytes for 32 values: once a block, once a guess of the layer.
    const auto rows = static_cast<double>(40 * hidden / 32 * 34);
    EXPECT_EQ(found.drafts[0].bytes.head, rows);
    EXPECT_EQ(found.drafts[1].bytes.head, 2 * rows);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(found.drafts[i].kind, shared.drafts[i].kind);
        EXPECT_NE(found.drafts[i].checksum, shared.drafts[i].checksum);  // of fewer tokens
        BytesRead rest = found.drafts[i].bytes;
        rest.head = shared.drafts[i].bytes.head;
        EXPECT_EQ(rest.all(), shared.drafts[i].bytes.all());
    }
}

TEST_F(Bench, drafts_that_cannot_be_made_are_refused) {
    auto draft = request<DraftBenchRequest>();
    for (const std::int64_t guesses : {0, 16}) {
        draft.guesses = {guesses};
        EXPECT_NE(bench_draft(draft).error().message.find("wanted 1 to 15"), std::string::npos);
    }
    draft.guesses = {};
    EXPECT_FALSE(bench_draft(draft).ok());
    draft.guesses = {15};
    draft.model.dflash = draft_;
    EXPECT_NE(bench_draft(draft).error().message.find("of this one"), std::string::npos);
    draft.guesses = {1};
    draft.depth = 0;
    EXPECT_FALSE(bench_draft(draft).ok());
    auto none = request<DraftBenchRequest>();
    SynthRequest synth;
    synth.preset = "tiny";
    synth.output = none.model.model = folder_ / "none.gguf";
    ASSERT_TRUE(synthesize_model(synth).ok());
    EXPECT_NE(bench_draft(none).error().message.find("no MTP layer"), std::string::npos);
}

TEST_F(Bench, a_load_is_timed_and_its_memory_told) {
    const LoadBench found = bench_load(request<BenchOptions>()).value();
    EXPECT_GT(found.read_ms.least, 0);
    EXPECT_GT(found.ready_ms.least, 0);
    EXPECT_GT(found.first_token_ms.least, 0);
    EXPECT_EQ(found.file_bytes, std::filesystem::file_size(path_));
    EXPECT_GT(found.state_bytes, 0u);
    EXPECT_GT(found.resident_bytes, 0u);
}

TEST_F(Bench, a_depth_that_is_being_read_can_be_ended) {
    auto decode = request<DecodeBenchRequest>();
    decode.depth = 40;
    decode.tokens = 1;
    decode.windows = {1};
    decode.model.chunk = 8;
    int asked = 0;
    const auto found = bench_decode(decode, [&](auto, auto) { return ++asked < 3; });
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(asked, 3);  // before the third chunk
    EXPECT_NE(found.error().message.find("ended"), std::string::npos);
}

TEST_F(Bench, what_cannot_be_measured_is_refused) {
    auto decode = request<DecodeBenchRequest>();
    decode.windows = {17};
    EXPECT_NE(bench_decode(decode).error().message.find("17"), std::string::npos);
    decode.windows = {};
    EXPECT_FALSE(bench_decode(decode).ok());
    decode.windows = {1};
    decode.repeats = 0;
    EXPECT_FALSE(bench_decode(decode).ok());
    auto prompt = request<PromptBenchRequest>();
    prompt.tokens = 0;
    EXPECT_FALSE(bench_prompt(prompt).ok());
    prompt.tokens = 8;
    prompt.model.ram = 1;
    EXPECT_NE(bench_prompt(prompt).error().message.find("of memory"), std::string::npos);
    auto far = request<DecodeBenchRequest>();
    far.windows = {1};
    far.depth = 1 << 30;
    EXPECT_NE(bench_decode(far).error().message.find("the trained length"), std::string::npos);
    auto load = request<BenchOptions>();
    load.model.model = folder_ / "none";
    EXPECT_FALSE(bench_load(load).ok());
    EXPECT_FALSE(
        bench_prompt(request<PromptBenchRequest>(), [](auto, auto) { return false; }).ok());
}

TEST(Ops, are_timed_beside_the_bytes_that_they_move) {
    OpBenchRequest request;
    request.threads = 2;
    request.repeats = 1;
    request.small = true;
    const OpBench all = bench_ops(request).value();
    for (const char* const name :
         {"stream_read", "stream_read_q8_0", "draw_top_k_p", "dflash_block_q4_0",
          "dflash_inject_bf16", "dflash_select_drawn"}) {
        EXPECT_GT(std::ranges::count(all.ops, name, &OpFigure::name), 0) << name;
    }
    request.threads = 1;
    request.filter = "stream_read";
    const OpBench one = bench_ops(request).value();
    ASSERT_EQ(one.ops.size(), 4u);
    for (const OpFigure& figure : one.ops) {
        EXPECT_GT(figure.bytes, 0);
        EXPECT_GT(figure.floor_ms, 0);
        EXPECT_GT(figure.ms.least, 0);
    }
    // The number of threads changes no bit.
    EXPECT_EQ(one.ops[0].checksum, all.ops[0].checksum);
    request.filter = "none of them";
    EXPECT_FALSE(bench_ops(request).ok());
}

TEST(Machine, reads_and_multiplies_and_refuses_threads_that_cannot_be) {
    const MachineRates rates = measure_machine(1, true).value();
    EXPECT_EQ(rates.threads, 1);
    EXPECT_GT(rates.read_bytes, 1e8);
    EXPECT_GT(rates.f32_multiply_adds, 1e7);
    EXPECT_GE(rates.bf16_multiply_adds, rates.f32_multiply_adds);
    EXPECT_GT(rates.i8_multiply_adds, 1e7);
    EXPECT_FALSE(measure_machine(-1).ok());
}

}  // namespace
}  // namespace strata
