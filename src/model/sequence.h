// Everything the model remembers of one sequence of tokens.
//
// A step on a sequence is a transaction. Target::step runs rows after the committed ones without
// touching anything committed; then commit(m) keeps the first m of them in every kind of state
// together, or drop() forgets them all. The kinds of state, and what makes each of them droppable:
//   keys, values, block keys      rows at and past the committed length are scratch
//   delta-net memories, histories the step writes the state after all its rows, or those that the
//                                 device counted, beside the committed one; commit swaps the two,
//                                 and before that makes it the one after other rows by the window's
//                                 trace
//   recent tokens, length         host values, changed by commit alone
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/carver.h"
#include "device/device.h"
#include "model/config.h"
#include "op/table.h"

namespace strata::model {

// Rows of a verify window: the most that commit can keep a part of.
inline constexpr std::int64_t kWindowRowsMax = 16;

// Memory for residuals that wait for their MTP cells, where it holds this many rows: a layer that
// does not guess for a while costs a copy a row.
inline constexpr std::int64_t kMtpWaitingBytes = std::int64_t{8} << 20;
inline constexpr std::int64_t kMtpWaitingRowsMin = 32;

struct SequenceOptions {
    std::int64_t context = 0;  // rows that fit, at least 1
    op::CacheType cache = op::CacheType::f16;
    bool mtp = false;  // keep the MTP layer's cells up to date
    std::int64_t mtp_waiting_bytes = kMtpWaitingBytes;
};

// State of one delta-net layer.
struct DeltaLayerState {
    op::DeltaState now;
    op::DeltaState next;
    op::DeltaTrace trace;  // kWindowRowsMax rows
};

// State of one attention layer.
struct AttentionLayerState {
    op::AttentionCache cache;
    float* raw_now = nullptr;  // [ratio-1, index_dim]
    float* raw_next = nullptr;
    MatrixView<float> raw_trace;
};

struct NgramState {
    float* now = nullptr;  // [history rows, stream width]
    float* next = nullptr;
    MatrixView<float> trace;
};

// State of the MTP layer. Cell p holds the trunk's residual of token p with token p+1, so the last
// committed token has no cell until its successor is known: its residual waits. Those before it may
// wait too, until a guess or the saved state needs their cells.
struct MtpState {
    AttentionLayerState attention;
    MatrixView<float> waiting;      // [rows that may wait, stream width]
    std::int64_t waiting_rows = 0;  // of positions length-waiting_rows to length-1
    float* draft_raw = nullptr;     // the index history of a chain of guesses
};

class Sequence {
  public:
    // Allocates the whole state at once. Errors: options out of range, not enough memory.
    static Result<Sequence> create(const Config& config, device::Device& device,
                                   const SequenceOptions& options);

    // Bytes that create() would allocate.
    static std::uint64_t state_bytes(const Config& config, const SequenceOptions& options);

    std::int64_t length() const { return static_cast<std::int64_t>(tokens_.size()); }
    std::int64_t context() const { return options_.context; }
    // The committed tokens.
    std::span<const std::int32_t> tokens() const { return tokens_; }
    const SequenceOptions& options() const { return options_; }
    bool stepping() const { return !pending_.empty(); }
    // Rows whose MTP cells the next guess of that layer has to compute first.
    std::int64_t mtp_behind() const { return std::max<std::int64_t>(mtp_.waiting_rows - 1, 0); }

    // Forgets everything: the empty sequence again.
    void reset(device::Queue& queue);

    // The committed state as bytes: equal bytes mean equal futures. Not while stepping, nor while
    // more than one residual waits for its MTP cell.
    std::string save(device::Queue& queue) const;
    // Takes the place of the current state. Errors, which leave the sequence as it was: bytes that
    // save() of a sequence of the same model and options did not write, or more rows than fit here.
    Status restore(device::Queue& queue, std::span<const char> saved);

    // The same state in two parts, for many states of one text that share what they can. Rows leave
    // cells behind, which later rows only add to; the moment is the rest: recurrent memories,
    // histories, a block that is not full, a residual that waits. Bytes are of sequences with the
    // same options, and no others. Not while stepping; saving as save().
    std::string save_moment(device::Queue& queue) const;
    // Of rows first to length-1.
    std::string save_rows(device::Queue& queue, std::int64_t first) const;
    // Brings back `tokens` and the moment after them, once the cells of all of them are in place.
    void restore_moment(device::Queue& queue, std::span<const std::int32_t> tokens,
                        std::string_view saved);
    // Puts cells of rows first to last-1 in place. A sequence is no good until its moment is back.
    void restore_rows(device::Queue& queue, std::int64_t first, std::int64_t last,
                      std::string_view saved);
    // Bytes of a moment at most, and of the cells of `rows` rows.
    static std::uint64_t moment_bytes(const Config& config, const SequenceOptions& options);
    static std::uint64_t rows_bytes(const Config& config, const SequenceOptions& options,
                                    std::int64_t rows);

  private:
    friend class Target;
    Sequence() = default;

    // What the addresses of the state depend on: equal marks, equal addresses. Of what takes turns
    // none, that of the trunk, or that of the MTP layer.
    void mark(std::vector<std::int64_t>& key) const;
    void mark_trunk(std::vector<std::int64_t>& key) const;
    void mark_mtp(std::vector<std::int64_t>& key) const;

    void lay_out(device::Carver& carver);
    void lay_out_attention(device::Carver& carver, AttentionLayerState& state);
    using Region = std::function<void(void* data, std::size_t bytes)>;
    // What rows first to last-1 left behind in a layer.
    void visit_cells(const AttentionLayerState& state, std::int64_t first, std::int64_t last,
                     const Region& region) const;
    // The rows of its block that is not full.
    void visit_open(const AttentionLayerState& state, std::int64_t rows,
                    const Region& region) const;
    void visit_attention(const AttentionLayerState& state, std::int64_t rows,
                         const Region& region) const;
    void visit_delta(const Region& region) const;
    void visit_ngram(const Region& region) const;
    void visit_waiting(std::int64_t rows, const Region& region) const;
    // All of the state, in the order in which it is saved; then its two parts.
    void visit(std::int64_t rows, const Region& region) const;
    void visit_moment(std::int64_t rows, const Region& region) const;
    void visit_rows(std::int64_t first, std::int64_t last, const Region& region) const;
    // Appends each region to `out`; takes each off the start of `saved`.
    Region download_to(device::Queue& queue, std::string& out) const;
    Region upload_from(device::Queue& queue, std::string_view& saved) const;
    static Sequence unallocated(const Config& config, const SequenceOptions& options);
    std::string header(std::int64_t rows) const;

    // A commit's parts. That the first `rows` of the pending ones can be kept:
    void check_kept(std::int64_t rows) const;
    // Makes the next state that after the first rows of a window, whatever it was; where the count
    // is told by memory, it was that after all of them.
    void replay(const op::KeptRows& kept, const op::Table& ops, device::Queue& queue);
    // Takes the next state, which is that after `rows` rows, and notes their tokens.
    void keep(std::int64_t rows);
    void swap_states();
    void drop() { pending_.clear(); }

    Config config_;
    SequenceOptions options_;
    device::Device* device_ = nullptr;
    device::Buffer memory_;
    std::vector<DeltaLayerState> delta_;          // in layer order, of the delta-net layers alone
    std::vector<AttentionLayerState> attention_;  // likewise
    NgramState ngram_;
    MtpState mtp_;
    std::vector<std::int32_t> tokens_;
    std::vector<std::int32_t> pending_;  // the tokens of the step under way
    bool pending_traced_ = false;        // the step was a window: a part of it can be kept
    std::int64_t next_rows_ = 0;         // of the pending ones: next states are after so many
    // What a replay hands over, kept for its memory.
    std::vector<op::ReplayedLayer> replayed_;
    std::vector<op::ShiftedHistory> shifted_;
};

}  // namespace strata::model
