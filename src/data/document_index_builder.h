// Makes document indexes (document_index.h): the documents of a source as pieces, and the pieces as samples.
//
//   packed    Every token of the data is in one sample, once. Documents longer than T are split into pieces of T tokens
//             and what is left; pieces are packed by best fit, longest first (best_fit.h), and a sample is padded where
//             no piece fits.
//   nosplit   The same of whole documents; of those longer than T, the first T tokens.
//             Of a source that marks its targets (token_source.h), pieces without one are left out of both.
//   varlen    The pieces of `packed` in the order of the data: each sample has as many as T has room for until one does
//             not fit. Nothing is padding, and samples are shorter than T.
//   masked    Sample w is tokens w·T … w·T + T - 1, as of windowed_dataset.h, cut where documents end.
//
// The last documents, with at least `eval_share` of the tokens, are for evaluation, and packed by themselves (masked:
// the last windows). Samples that are packed by best fit stand in a random order of their own, the same for the same
// data, so that any run of them is like all; a sample's pieces stand in the order of the data.
//
// Memory while it is built: about 50 bytes per piece. Failure: UserError (bad_input_file) for a source that does not
// know its documents or has too few of them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/document_index.h"
#include "data/token_source.h"
#include "spec/run/run_spec.h"

namespace lockstep {

struct DocumentIndexSettings {
  Documents kind;  // not stream
  std::int64_t T;
  double eval_share = 0;
};

// What the index of this source with these settings is to be.
DocumentIndex::Expected expected_index(const TokenSource& source, const DocumentIndexSettings& settings);

// The index as a file has it. `name` is what messages call the data.
std::vector<std::byte> build_document_index(const TokenSource& source, const DocumentIndexSettings& settings,
                                            const std::string& name);

// Opens the file at `path`, or builds the index and writes it there, under another name first. One that is of other
// data or settings is replaced; one that is damaged is refused. Where nothing can be written, or `path` is empty, the
// index is in memory.
std::unique_ptr<const DocumentIndex> open_document_index(const std::filesystem::path& path, const TokenSource& source,
                                                         const DocumentIndexSettings& settings,
                                                         const std::string& name);

}  // namespace lockstep
