// Times the ops of a prompt's chunk on CUDA device 0, one layer each, at the sizes of the full
// model: milliseconds a call and what they are in multiply-adds.
//
//     prompt_ops [rows [first [part of an op's name]]]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"

namespace strata {
namespace {

constexpr std::int64_t kWidth = 2560;
constexpr int kStreams = 4;
constexpr int kRepeats = 5;

class Bench {
  public:
    Bench(Backend& backend, std::string filter)
        : backend_(backend), queue_(backend.device->make_queue()), filter_(std::move(filter)) {}

    const op::Table& ops() const { return backend_.ops.for_prompts(); }
    device::Queue& queue() { return *queue_; }
    bool wants(const std::string& name) const { return name.find(filter_) != std::string::npos; }
    void forget() { buffers_.clear(); }

    std::uint32_t random() {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return static_cast<std::uint32_t>(state_ >> 32);
    }
    std::byte* place(const void* data, std::size_t bytes) {
        auto buffer = backend_.device->allocate(bytes);
        STRATA_CHECK(buffer.ok());
        if (data != nullptr) {
            const auto* from = static_cast<const std::byte*>(data);
            backend_.device->upload(*queue_, buffer->data(), {from, bytes});
        }
        buffers_.push_back(std::move(buffer).value());
        return buffers_.back().data();
    }
    float* floats(std::int64_t n, float low = -1, float high = 1) {
        std::vector<float> values(static_cast<std::size_t>(n));
        for (float& value : values) {
            value = low + (high - low) * static_cast<float>(random()) * 0x1p-32f;
        }
        return reinterpret_cast<float*>(place(values.data(), values.size() * sizeof(float)));
    }
    MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) {
        return {floats(rows * cols), rows, cols};
    }
    // Bytes that read as small numbers in every format.
    std::vector<std::byte> bytes(std::size_t n) {
        std::vector<std::byte> values(n);
        for (std::byte& value : values) value = std::byte(random() >> 8 & 0x2f);
        return values;
    }
    op::Weight weight(quant::Type type, std::int64_t rows, std::int64_t cols) {
        const quant::TypeInfo& info = quant::info(type);
        const std::int64_t row_bytes = cols / info.block * info.block_bytes;
        if (type == quant::Type::f32) {
            const auto* data = reinterpret_cast<const std::byte*>(floats(rows * cols));
            return {data, type, rows, cols, row_bytes};
        }
        const auto stored = bytes(static_cast<std::size_t>(rows * row_bytes));
        auto data = backend_.device->resident_matrix(stored, type, cols);
        STRATA_CHECK(data.ok());
        return {*data, type, rows, cols, row_bytes};
    }

    void time(const std::string& name, std::int64_t multiply_adds,
              const std::function<void()>& call) {
        call();
        queue_->wait();
        std::vector<double> ms;
        for (int i = 0; i < kRepeats; ++i) {
            constexpr int kCalls = 4;
            const auto start = std::chrono::steady_clock::now();
            for (int j = 0; j < kCalls; ++j) call();
            queue_->wait();
            const std::chrono::duration<double, std::milli> took =
                std::chrono::steady_clock::now() - start;
            ms.push_back(took.count() / kCalls);
        }
        std::sort(ms.begin(), ms.end());
        std::printf("%-44s %8.3f ms (least %8.3f) %7.1f TFLOP/s\n", name.c_str(), ms[kRepeats / 2],
                    ms[0], 2 * static_cast<double>(multiply_adds) / ms[kRepeats / 2] * 1e-9);
        std::fflush(stdout);
    }

  private:
    Backend& backend_;
    std::unique_ptr<device::Queue> queue_;
    std::string filter_;
    std::vector<device::Buffer> buffers_;
    std::uint64_t state_ = 7;
};

void bench_product(Bench& bench, std::int64_t rows, quant::Type type, std::int64_t outs,
                   std::int64_t cols) {
    const std::string name = "product " + std::string(quant::info(type).name) + ' ' +
                             std::to_string(outs) + " x " + std::to_string(cols);
    if (!bench.wants(name)) return;
    const op::OutputHead args{bench.matrix(rows, cols), bench.weight(type, outs, cols),
                              bench.matrix(rows, outs)};
    bench.time(name, rows * outs * cols, [&] { bench.ops().output_head(args, bench.queue()); });
    bench.forget();
}

void bench_stream_read(Bench& bench, std::int64_t rows) {
    if (!bench.wants("stream_read")) return;
    op::StreamRead args;
    args.residual = bench.matrix(rows, kStreams * kWidth);
    args.block_out = bench.matrix(rows, kWidth);
    args.inject = bench.matrix(rows, kStreams);
    args.block_inject = args.inject;
    args.norm = bench.floats(kStreams * kWidth);
    args.down = bench.weight(quant::Type::bf16, 320, kStreams * kWidth);
    args.up = bench.weight(quant::Type::bf16, kStreams * kWidth, 320);
    args.inject_weight = bench.weight(quant::Type::bf16, kStreams, kStreams * kWidth);
    args.streams = kStreams;
    args.epsilon = 1e-6f;
    args.x = bench.matrix(rows, kWidth);
    bench.time("stream_read", 2 * rows * 320 * kStreams * kWidth,
               [&] { bench.ops().stream_read(args, bench.queue()); });
    bench.forget();
}

void bench_delta_net(Bench& bench, std::int64_t rows) {
    if (!bench.wants("delta_net")) return;
    op::DeltaNet args;
    args.shape = {16, 48, 128, 128, 4};
    const std::int64_t channels = args.shape.channels();
    args.x = bench.matrix(rows, kWidth);
    args.qkv = bench.weight(quant::Type::q8_0, channels, kWidth);
    args.gate = bench.weight(quant::Type::q8_0, 6144, kWidth);
    args.beta_weight = bench.weight(quant::Type::bf16, 48, kWidth);
    args.alpha_weight = bench.weight(quant::Type::bf16, 48, kWidth);
    args.conv = bench.floats(channels * 4);
    args.decay_rate = bench.floats(48, -1, 0);
    args.decay_bias = bench.floats(48);
    args.norm = bench.floats(128);
    args.out = bench.weight(quant::Type::q8_0, kWidth, 6144);
    args.epsilon = 1e-6f;
    args.from = {bench.floats(48 * 128 * 128), bench.floats(3 * channels)};
    args.to = args.from;
    args.y = bench.matrix(rows, kWidth);
    bench.time("delta_net", rows * kWidth * (channels + 2 * 6144),
               [&] { bench.ops().delta_net(args, bench.queue()); });
    bench.forget();
}

void bench_attention(Bench& bench, std::int64_t rows, std::int64_t first) {
    if (!bench.wants("sparse_attention")) return;
    op::SparseAttention args;
    args.shape = {24, 2, 256, 4, 128, 4, 512, 32};
    args.x = bench.matrix(rows, kWidth);
    args.first = first;
    args.query = bench.weight(quant::Type::q8_0, 12288, kWidth);
    args.key = bench.weight(quant::Type::q8_0, 512, kWidth);
    args.value = bench.weight(quant::Type::q8_0, 512, kWidth);
    args.out = bench.weight(quant::Type::q8_0, kWidth, 6144);
    args.index_query = bench.weight(quant::Type::bf16, 512, kWidth);
    args.index_key = bench.weight(quant::Type::bf16, 128, kWidth);
    args.query_norm = args.key_norm = bench.floats(256);
    args.index_query_norm = args.index_key_norm = bench.floats(128);
    const std::vector<double> frequencies(32, 1e-3);
    args.inverse_frequency = reinterpret_cast<const double*>(
        bench.place(frequencies.data(), frequencies.size() * sizeof(double)));
    args.epsilon = 1e-6f;
    const std::int64_t context = (first + rows + 7) / 4 * 4;
    const auto cache = bench.bytes(static_cast<std::size_t>(context * 1024));
    args.cache.keys = bench.place(cache.data(), cache.size());
    args.cache.values = bench.place(cache.data(), cache.size());
    args.cache.block_keys = bench.floats(context / 4 * 128);
    args.cache.context = context;
    args.raw_from = bench.floats(3 * 128);
    args.raw_to = bench.floats(3 * 128);
    args.y = bench.matrix(rows, kWidth);
    bench.time("sparse_attention at " + std::to_string(first),
               rows * kWidth * (12288 + 2 * 512 + 640 + 6144),
               [&] { bench.ops().sparse_attention(args, bench.queue()); });
    bench.forget();
}

void bench_experts(Bench& bench, std::int64_t rows, quant::Type gate, quant::Type down) {
    const std::string name = "experts " + std::string(quant::info(gate).name) + ", " +
                             std::string(quant::info(down).name);
    if (!bench.wants(name)) return;
    constexpr std::int64_t kExperts = 512;
    constexpr std::int64_t kHidden = 640;
    op::Experts args;
    args.x = bench.matrix(rows, kWidth);
    args.router = bench.weight(quant::Type::f32, kExperts, kWidth);
    const auto place = [&](quant::Type type, std::int64_t outs, std::int64_t cols) {
        const op::Weight all = bench.weight(type, kExperts * outs, cols);
        std::vector<const std::byte*> table;
        for (std::int64_t e = 0; e < kExperts; ++e) table.push_back(all.row(e * outs));
        return reinterpret_cast<const std::byte* const*>(
            bench.place(table.data(), table.size() * sizeof(table[0])));
    };
    args.experts.gate_at = place(gate, kHidden, kWidth);
    args.experts.up_at = place(gate, kHidden, kWidth);
    args.experts.down_at = place(down, kWidth, kHidden);
    args.experts.gate_type = args.experts.up_type = gate;
    args.experts.down_type = down;
    args.experts.count = kExperts;
    args.experts.hidden = kHidden;
    args.shared_scale = bench.weight(quant::Type::f32, 1, kWidth);
    args.shared_gate = bench.weight(quant::Type::q8_0, kHidden, kWidth);
    args.shared_up = bench.weight(quant::Type::q8_0, kHidden, kWidth);
    args.shared_down = bench.weight(quant::Type::q8_0, kWidth, kHidden);
    args.active = 10;
    args.y = bench.matrix(rows, kWidth);
    bench.time(name, rows * 11 * 3 * kHidden * kWidth,
               [&] { bench.ops().experts(args, bench.queue()); });
    bench.forget();
}

int run(int argc, char** argv) {
    const std::int64_t rows = argc > 1 ? std::atoll(argv[1]) : 2048;
    const std::int64_t first = argc > 2 ? std::atoll(argv[2]) : 6144;
    auto backend = make_cuda_backend(0);
    if (!backend.ok()) {
        std::printf("%s\n", backend.error().message.c_str());
        return 1;
    }
    Bench bench(*backend, argc > 3 ? argv[3] : "");
    std::printf("%lld rows\n", static_cast<long long>(rows));
    for (const quant::Type type : {quant::Type::bf16, quant::Type::q8_0}) {
        bench_product(bench, rows, type, 10240, kWidth);
        bench_product(bench, rows, type, kWidth, 6144);
    }
    bench_product(bench, rows, quant::Type::bf16, 320, kStreams * kWidth);
    bench_product(bench, rows, quant::Type::bf16, 512, kWidth);
    bench_stream_read(bench, rows);
    bench_delta_net(bench, rows);
    bench_attention(bench, rows, 0);
    bench_attention(bench, rows, first);
    bench_experts(bench, rows, quant::Type::q8_0, quant::Type::q8_0);
    bench_experts(bench, rows, quant::Type::iq3_xxs, quant::Type::q2_0);
    return 0;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) { return strata::run(argc, argv); }
