// A sequence's state in two parts: the moment, and the cells that rows leave behind.
#include <algorithm>

#include "base/check.h"
#include "base/checked.h"
#include "model/sequence.h"

namespace strata::model {

std::string Sequence::save_moment(device::Queue& queue) const {
    STRATA_CHECK(!stepping() && mtp_.waiting_rows <= 1);
    std::string out;
    visit_moment(length(), download_to(queue, out));
    return out;
}

std::string Sequence::save_rows(device::Queue& queue, std::int64_t first) const {
    STRATA_CHECK(!stepping() && mtp_.waiting_rows <= 1 && first >= 0 && first <= length());
    std::string out;
    std::size_t all = 0;
    visit_rows(first, length(), [&](void*, std::size_t bytes) { all += bytes; });
    out.reserve(all);
    visit_rows(first, length(), download_to(queue, out));
    return out;
}

void Sequence::restore_moment(device::Queue& queue, std::span<const std::int32_t> tokens,
                              std::string_view saved) {
    STRATA_CHECK(!stepping());
    const auto rows = static_cast<std::int64_t>(tokens.size());
    STRATA_CHECK(rows <= options_.context);
    visit_moment(rows, upload_from(queue, saved));
    STRATA_CHECK(saved.empty());
    tokens_.assign(tokens.begin(), tokens.end());
    mtp_.waiting_rows = options_.mtp && rows > 0 ? 1 : 0;
}

void Sequence::restore_rows(device::Queue& queue, std::int64_t first, std::int64_t last,
                            std::string_view saved) {
    STRATA_CHECK(!stepping() && first >= 0 && first <= last && last <= options_.context);
    visit_rows(first, last, upload_from(queue, saved));
    STRATA_CHECK(saved.empty());
}

std::uint64_t Sequence::moment_bytes(const Config& config, const SequenceOptions& options) {
    const Sequence sequence = unallocated(config, options);
    std::uint64_t bytes = 0;
    const Region add = [&](void*, std::size_t region) { bytes = saturating_add(bytes, region); };
    // The most that a block holds without being full, of the MTP layer's too.
    sequence.visit_moment(std::max(config.index_ratio - 1, 1), add);
    if (options.mtp) sequence.visit_open(sequence.mtp_.attention, config.index_ratio - 1, add);
    return bytes;
}

std::uint64_t Sequence::rows_bytes(const Config& config, const SequenceOptions& options,
                                   std::int64_t rows) {
    std::uint64_t bytes = 0;
    unallocated(config, options).visit_rows(0, rows, [&](void*, std::size_t region) {
        bytes = saturating_add(bytes, region);
    });
    return bytes;
}

Sequence::Region Sequence::download_to(device::Queue& queue, std::string& out) const {
    return [this, &queue, &out](void* data, std::size_t bytes) {
        const std::size_t at = out.size();
        out.resize(at + bytes);
        device_->download(queue, std::as_writable_bytes(std::span(out).subspan(at)),
                          static_cast<const std::byte*>(data));
    };
}

Sequence::Region Sequence::upload_from(device::Queue& queue, std::string_view& saved) const {
    return [this, &queue, &saved](void* data, std::size_t bytes) {
        STRATA_CHECK(bytes <= saved.size());
        device_->upload(queue, static_cast<std::byte*>(data),
                        std::as_bytes(std::span(saved.substr(0, bytes))));
        saved.remove_prefix(bytes);
    };
}

}  // namespace strata::model
