// The state files of a checkpoint: which slices each rank writes into which of them, and that together they are whole.
//
// A rank lays its pieces, in the order of part, name and place, into as many files as the limit asks for, and describes
// them to the others in text. From all descriptions every rank derives the same: the names of all files, those of rank
// 0 first, then those of rank 1 and so on; and every slice of every logical tensor.
//
// Nothing is owned: the tensors outlive this.
#pragma once
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "checkpoint/rows.h"
#include "checkpoint/state.h"
#include "tensor/stream.h"

namespace lockstep {

class StateFiles {
 public:
  // The pieces that this rank writes, on the host or beside the stream, in any order. One without elements is not
  // written, but says that there is such a tensor, whose elements other ranks must have. A file holds at most `limit`
  // bytes of tensors, unless a single piece has more. ProgramError for a tensor that no file can hold, or that breaks
  // its contract (state.h).
  StateFiles(std::span<const StateTensor> pieces, std::int64_t limit, Stream* stream = nullptr);

  std::string described() const;
  // Writes and syncs the files of this rank, which are numbers `first` and on of `all`, into a folder that is there.
  std::vector<ManifestFile> write(const std::filesystem::path& into, std::int64_t first, std::int64_t all,
                                  const Disk& disk) const;

 private:
  struct Piece {
    const StateTensor* state;
    StridedRange rows;
    std::int64_t file = 0;
  };
  std::vector<Piece> pieces_;
  std::int64_t files_ = 0;
  Stream* stream_;
};

struct WholeState {
  std::vector<ManifestTensor> tensors;  // by part, then name
  std::vector<std::int64_t> begins;     // the number of each rank's first file, and in the end of all files
};

// What all ranks described, by rank. ProgramError when it does not cover each tensor that any of them names exactly, or
// when rows of one tensor have two pitches: it names the tensor, the place and the rank.
WholeState join_state(std::span<const std::string> described);

}  // namespace lockstep
