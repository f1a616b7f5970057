#include "spec/dflash/context.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "device/carver.h"

namespace strata::dflash {
namespace {

std::int64_t slots_of(const Config& config, std::int64_t layer, std::int64_t context) {
    const std::int64_t window = config.layer_window(layer);
    return window == 0 ? context : std::min(context, window + kRingSlack);
}

std::vector<op::DflashCells> carve(const Config& config, const ContextOptions& options,
                                   device::Carver& pieces) {
    std::vector<op::DflashCells> all;
    const op::CacheRow row{options.cache, config.kv_heads, config.head_dim};
    const auto size = static_cast<std::size_t>(row.bytes());
    for (std::int64_t l = 0; l < config.layers; ++l) {
        op::DflashCells cells;
        cells.slots = slots_of(config, l, options.context);
        cells.type = options.cache;
        cells.keys = pieces.take_bytes(cells.slots, size);
        cells.values = pieces.take_bytes(cells.slots, size);
        cells.position = pieces.take<std::int32_t>(cells.slots);
        all.push_back(cells);
    }
    return all;
}

}  // namespace

std::int64_t Context::reach(const Config& config, std::int64_t context) {
    std::int64_t reach = 0;
    for (std::int64_t l = 0; l < config.layers; ++l) {
        reach = std::max(reach, slots_of(config, l, context));
    }
    return reach;
}

std::uint64_t Context::bytes(const Config& config, const ContextOptions& options) {
    device::Carver pieces;
    carve(config, options, pieces);
    return pieces.used();
}

Result<Context> Context::create(const Config& config, device::Device& device, device::Queue& queue,
                                const ContextOptions& options) {
    STRATA_CHECK(options.context >= 1);
    Context context;
    context.options_ = options;
    context.device_ = &device;
    STRATA_ASSIGN(context.memory_,
                  device.allocate(static_cast<std::size_t>(bytes(config, options))));
    device::Carver pieces(context.memory_.data());
    context.cells_ = carve(config, options, pieces);
    context.geometry_ =
        concat("dflash ", config.layers, ' ', config.kv_heads, ' ', config.head_dim, ' ',
               config.window, ' ', options.context, ' ', static_cast<int>(options.cache), '\n');
    context.truncate(0, queue);
    return context;
}

void Context::mark(std::vector<std::int64_t>& key) const {
    key.push_back(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(memory_.data())));
    key.push_back(options_.context);
    key.push_back(static_cast<std::int64_t>(options_.cache));
}

void Context::truncate(std::int64_t length, device::Queue& queue) {
    std::vector<std::int32_t> positions;
    for (const op::DflashCells& cells : cells_) {
        positions.assign(static_cast<std::size_t>(cells.slots), -1);
        auto* const at = reinterpret_cast<std::byte*>(cells.position);
        if (length > 0) {
            device_->download(queue, std::as_writable_bytes(std::span(positions)), at);
        }
        for (std::int32_t& p : positions) {
            if (p >= length) p = -1;
        }
        device_->upload(queue, at, std::as_bytes(std::span(positions)));
    }
    queue.wait();
}

std::string Context::save(device::Queue& queue) const {
    std::string saved = geometry_;
    const std::size_t at = saved.size();
    saved.resize(at + memory_.bytes());
    device_->download(queue, std::as_writable_bytes(std::span(saved).subspan(at)), memory_.data());
    queue.wait();
    return saved;
}

Status Context::restore(std::span<const char> saved, device::Queue& queue) {
    const bool ours = saved.size() == geometry_.size() + memory_.bytes() &&
                      std::memcmp(saved.data(), geometry_.data(), geometry_.size()) == 0;
    if (!ours) {
        return STRATA_ERROR("a draft's context of ", saved.size(),
                            " bytes was not saved by this draft with these options, wanted ",
                            geometry_.size() + memory_.bytes());
    }
    device_->upload(queue, memory_.data(), std::as_bytes(saved.subspan(geometry_.size())));
    queue.wait();
    return Ok{};
}

}  // namespace strata::dflash
