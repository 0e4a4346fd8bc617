// Samples of documents, by an index (document_index.h): the pieces of a sample one after another, then padding.
//
// Each piece begins a document of its own. A token's target is the next token of its document; the last of a document
// has none, nor has padding (token 0, or kPadding where samples are of variable length). Where a document continues in
// another sample, the first token there is the target of the last one here.
#pragma once
#include "data/dataset.h"
#include "data/document_index.h"
#include "data/token_source.h"

namespace lockstep {

class PackedDataset final : public Dataset {
 public:
  // Samples first, first + 1, … of the index, `count` of them. Source and index must outlive this object.
  PackedDataset(const TokenSource& source, const DocumentIndex& index, std::int64_t first, std::int64_t count,
                bool variable = false);

  std::int64_t samples() const override { return count_; }
  std::int64_t sequence() const override { return index_.T(); }
  std::int64_t vocabulary() const override { return source_.vocabulary(); }
  bool endless() const override { return false; }
  void sample(std::int64_t index, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const override;
  std::shared_ptr<const DocumentPairs> documents() const override { return index_.documents(); }
  std::uint64_t fingerprint() const override;

 private:
  const TokenSource& source_;
  const DocumentIndex& index_;
  std::int64_t first_, count_;
  std::int32_t padding_;
};

}  // namespace lockstep
