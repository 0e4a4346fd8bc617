// Places for things that live only part of the time: two may share bytes when they never live together.
//
// Each thing has a size and the first and last moment (inclusive) it must keep its bytes. plan() gives every one an
// offset and returns the bytes needed in all: the larger first, each at the lowest place free over its whole life; or,
// where that takes more than the fullest moment has, in the order of birth, at the two ends in turn, if everything fits
// into the fullest moment's bytes so (of things of which two live at a time it does); or else the best of some other
// orders: by birth, by length of life, by both length and size. Deterministic: the same list gives the same places.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

class Lifetimes {
 public:
  explicit Lifetimes(std::int64_t alignment) : alignment_(alignment) {}

  int add(std::int64_t bytes, std::int64_t first, std::int64_t last);
  std::int64_t plan();
  std::int64_t offset(int id) const { return things_.at(id).offset; }

 private:
  struct Thing {
    std::int64_t bytes, first, last, offset;
  };
  std::int64_t place_in_order(const std::vector<int>& order);
  std::int64_t fullest_moment() const;
  bool place_at_both_ends(std::int64_t room);

  std::int64_t alignment_;
  std::vector<Thing> things_;
};

}  // namespace lockstep
