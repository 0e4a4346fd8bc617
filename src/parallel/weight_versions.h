// The versions of a stage's weights that a pipeline without a flush keeps (spec/pipeline/pipedream.h): those that are
// updated, and copies of earlier ones.
//
// `places` copies of the weights that compute, unit by unit. stash() copies a unit's weights as they are into the place
// of the version modulo the places, where the version before it that had the place is no longer used. weights() are
// those of a version: a copy's, or, of the newest version, the weights themselves. Which versions are where the list of
// actions says, and its checker proves (find_pipedream_fault); here they are counted from the window's first.
//
// One thread uses it; the storage outlives it. Every buffer is allocated by the constructor.
#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "parallel/zero_shards.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep {

class WeightVersions {
 public:
  static constexpr std::string_view kRow = ", stashed";  // after a unit's name, in the ledger

  // `whole`: by unit and parameter, the weights that are updated, views into `storage`.
  WeightVersions(int places, const std::map<int, ZeroShard>& storage,
                 const std::map<int, std::vector<ConstTensor>>& whole, Memory& memory, Stream& stream);

  // A window begins: all weights are its version 0.
  void begin_window();
  void stash(int unit, std::int64_t version);
  // The unit's weights have become this version.
  void updated(int unit, std::int64_t version) { newest_.at(unit) = version; }
  const std::vector<ConstTensor>& weights(int unit, std::int64_t version) const;
  const std::vector<ConstTensor>& current(int unit) const { return current_.at(unit); }

 private:
  std::size_t place(std::int64_t version) const {
    return static_cast<std::size_t>((version % places_ + places_) % places_);
  }

  std::int64_t places_;
  const std::map<int, ZeroShard>& storage_;
  Stream& stream_;
  std::map<int, std::int64_t> newest_;                            // by unit
  std::map<int, std::vector<ConstTensor>> current_;               // by unit and parameter
  std::vector<Buffer> buffers_;                                   // by unit, all places
  std::map<int, std::vector<Tensor>> flat_;                       // by unit and place
  std::map<int, std::vector<std::vector<ConstTensor>>> stashed_;  // by unit, place and parameter
};

}  // namespace lockstep
