// SPDX-License-Identifier: Apache-2.0
#include "tests/crash/workloads.h"

namespace sluice::crash {

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = {
      {"plain", Base::kPoison, Between::kNothing, false, false},
      {"written", Base::kOlder, Between::kWriteout, false, false},
      {"older", Base::kOlder, Between::kNothing, true, false},
      {"commits", Base::kOlder, Between::kCommit, true, false},
      {"checkpoints", Base::kPoison, Between::kCheckpoint, true, false},
      {"dirsync", Base::kOlder, Between::kNothing, false, true},
  };
  return settings;
}

const std::vector<Workload>& Workloads() {
  static const std::vector<Workload> workloads = {
      // One file, data.
      {"create_fsync", "create A/f; fsync A/f"},
      {"create_write_fsync", "create A/f; write A/f 0 10000; fsync A/f"},
      {"create_write_fdatasync", "create A/f; write A/f 0 3000; fdatasync A/f"},
      {"create_without_sync", "create A/f; write A/f 0 5000; create A/g; append A/g 300"},
      {"overwrite_fdatasync", "write A/foo 512 3000; fdatasync A/foo; write A/foo 0 1024"},
      {"overwrite_fsync_twice",
       "write A/foo 0 6000; fsync A/foo; write A/foo 100 5000; fsync A/foo"},
      {"append_fsync", "append A/foo 5000; fsync A/foo; append A/foo 5000"},
      {"unaligned_appends_fdatasync",
       "append A/foo 77; fdatasync A/foo; append A/foo 1001; fdatasync A/foo; append A/foo 4096"},
      {"append_to_empty_fdatasync", "append A/bar 1; fdatasync A/bar; append A/bar 4095; sync"},
      {"sparse_write_fsync",
       "write A/bar 20000 100; fsync A/bar; write A/bar 8192 4096; fsync A/bar"},
      {"hole_filled_fdatasync",
       "truncate A/bar 16384; fsync A/bar; write A/bar 4096 4096; "
       "fdatasync A/bar; write A/bar 100 50"},
      {"large_file_fsync", "create A/f; write A/f 0 200000; fsync A/f; write A/f 100000 50000"},
      {"many_extents",
       "write A/bar 0 4096; write A/bar 8192 4096; write A/bar 16384 4096; "
       "write A/bar 24576 4096; write A/bar 32768 4096; write A/bar 40960 4096; "
       "write A/bar 49152 4096; fsync A/bar; truncate A/bar 10000; fsync A/bar"},
      {"write_of_other_file_fsync", "write A/foo 0 4096; append A/bar 5000; fsync A/bar"},
      // Truncation.
      {"truncate_down_fsync", "truncate A/foo 1000; fsync A/foo; truncate A/foo 0"},
      {"truncate_up_fsync", "truncate A/foo 9000; fsync A/foo"},
      {"truncate_down_up", "truncate A/foo 100; truncate A/foo 6000; fsync A/foo"},
      {"append_after_truncate", "truncate A/foo 2500; append A/foo 3000; fsync A/foo"},
      {"truncate_unaligned_append_fdatasync",
       "truncate A/foo 5001; append A/foo 4000; fdatasync A/foo; truncate A/foo 4096; sync"},
      {"rewrite_after_truncate_to_zero", "truncate A/foo 0; write A/foo 0 3000; fsync A/foo"},
      {"freed_blocks_reused",
       "truncate A/foo 0; create B/f; append B/f 8192; fsync B/f; "
       "append A/foo 8192; fsync A/foo"},
      {"truncate_large",
       "create A/f; write A/f 0 400000; fsync A/f; truncate A/f 5000; "
       "create B/g; append B/g 100000; fsync B/g"},
      // Names.
      {"mkdir_fsync_directory", "mkdir A/D; fsync A; create A/D/f; fsync A/D"},
      {"mkdirs_without_sync", "mkdir A/D; mkdir A/D/E; create A/D/E/f; rmdir A/C"},
      {"rmdir_fsync_parent", "rmdir A/C; fsync A; mkdir A/C; fsync A/C"},
      {"create_fsync_directory", "create A/f; append A/f 100; fsync A; unlink A/f; fsync A"},
      {"link_fsync", "link A/foo B/foo; fsync A/foo; append B/foo 3000; fsync B/foo"},
      {"link_same_directory", "link A/foo A/f; unlink A/foo; fsync A/f"},
      {"link_unlink_create_fsync", "link A/foo A/f; sync; unlink A/f; create A/f; fsync A/f"},
      {"unlink_fsync_directory",
       "unlink A/foo; fsync A; create A/foo; append A/foo 10; fsync A/foo"},
      {"unlink_without_sync", "unlink A/foo; unlink B/old; create B/f; append B/f 9000"},
      {"symlink_fsync_directory",
       "symlink A/s B/old; fsync A; unlink A/s; symlink A/s elsewhere; sync"},
      {"long_symlink",
       "symlink A/s "
       "/a/target/longer/than/what/an/inode/of/256/bytes/can/carry/in/itself/so/that/it/"
       "takes/a/block/of/its/own/and/is/written/through/the/log/like/any/other/metadata/block; "
       "fsync A; unlink A/s; create A/t; append A/t 4096; fsync A/t"},
      {"chmod_fsync", "chmod A/foo 600; fsync A/foo; chmod A/foo 755; chmod A 700; fsync A"},
      // Renames.
      {"rename_onto_nothing", "rename A/foo A/f; fsync A/f"},
      {"rename_across", "rename A/foo B/foo; fsync B; rename B/foo A/foo; fsync A"},
      {"rename_onto_file", "create A/f; append A/f 5000; rename A/f A/foo; fsync A"},
      {"atomic_replace", "create A/f; append A/f 7000; fsync A/f; rename A/f A/foo; fsync A"},
      {"replace_without_sync", "create A/f; append A/f 7000; rename A/f A/foo; create B/g"},
      {"rename_onto_directory", "mkdir B/D; rename B/D A/C; fsync A; create A/C/f; fsync A/C/f"},
      {"rename_directory_across", "rename A/C B/D; fsync B; create B/D/f; fsync B/D/f"},
      {"rename_whole_directory", "rename A B/A; create B/A/f; fsync B/A/f"},
      {"exchange_files", "exchange A/foo B/old; fsync A; append A/foo 100; fsync A/foo"},
      {"exchange_directory_and_file", "exchange A/C B/old; fdatasync A; mkdir B/old/D; sync"},
      {"exchange_directories", "create B/f; exchange A B; fsync B; append A/f 10; fsync A/f"},
      {"replace_across_fdatasync", "create A/f; rename A/f B/old; fdatasync B"},
      {"rename_chain",
       "rename A/foo A/1; rename A/1 A/2; rename A/2 B/3; rename B/old A/1; fsync A/1"},
      // Descriptors.
      {"tmpfile_link_fsync", "tmpfile @t A; append @t 5000; fsync @t; link @t A/f; fsync @t"},
      {"tmpfile_link_fsync_directory",
       "tmpfile @t A; append @t 300; link @t B/f; fsync B; close @t"},
      {"tmpfile_forgotten", "tmpfile @t A; append @t 9000; fsync @t; create A/f; fsync A/f"},
      {"unlinked_open",
       "open @o A/foo; unlink A/foo; append @o 5000; fsync @o; create A/foo; fsync A/foo"},
      {"replaced_open",
       "open @o B/old; rename A/foo B/old; write @o 0 8192; fsync @o; close @o; sync"},
      // Crash bugs that other filesystems had (the CrashMonkey list and ext4's own fixes).
      {"fsync_after_rename_onto_linked_name",
       "link A/foo B/foo; sync; create A/f; append A/f 100; rename A/f B/foo; fsync B/foo"},
      {"link_fsync_then_unlink_other", "link A/foo B/l; fsync A/foo; unlink A/foo; fsync B/l"},
      {"rename_directory_fsync_child",
       "create A/C/x; sync; rename A/C B/D; append B/D/x 100; fsync B/D/x"},
      {"renamed_and_recreated", "rename A/foo A/f; create A/foo; append A/foo 10; fsync A/foo"},
      {"renamed_away_and_replaced_across",
       "rename A/foo B/foo; create A/foo; append A/foo 20; fsync A/foo; fsync B/foo"},
      {"unlink_create_same_name_fsync",
       "unlink A/foo; create A/foo; write A/foo 0 2000; fsync A/foo; unlink A/foo; mkdir A/foo; "
       "fsync A"},
      {"append_fdatasync_size",
       "append A/foo 4096; fdatasync A/foo; append A/foo 100; fdatasync A/foo"},
      {"keep_size_fsync", "fallocate_keep A/foo 4096 20000; fsync A/foo; append A/foo 9000"},
      {"keep_size_then_append_fsync",
       "fallocate_keep A/foo 8192 16384; append A/foo 5000; fsync A/foo"},
      {"fallocate_fdatasync_write",
       "fallocate A/bar 0 16384; fdatasync A/bar; write A/bar 4000 5000; fdatasync A/bar"},
      {"punch_fsync", "punch A/foo 0 4096; fsync A/foo; write A/foo 100 200; fsync A/foo"},
      {"punch_unaligned_fsync", "punch A/foo 1000 4000; fsync A/foo"},
      {"punch_past_the_end",
       "punch A/foo 4096 100000; fsync A/foo; append A/foo 3000; fsync A/foo"},
      {"keep_size_punched_past_the_end",
       "fallocate_keep A/foo 8192 16384; fsync A/foo; punch A/foo 8192 8192; fsync A/foo; "
       "truncate A/foo 20000; fsync A/foo"},
      {"zero_range_fsync", "zero A/foo 500 9000; fsync A/foo; append A/foo 100; fdatasync A/foo"},
      {"punched_blocks_reused",
       "append A/foo 20000; fsync A/foo; punch A/foo 0 16384; create A/f; append A/f 16384; "
       "fsync A/f"},
      {"deep_renames_fsync_directory",
       "mkdir A/C/D; create A/C/D/f; sync; rename A/C/D B/D; rename A/C B/D/C; fsync B/D; "
       "mkdir A/C; fsync A/C"},
      {"directory_becomes_file", "rmdir A/C; create A/C; append A/C 4096; fsync A/C"},
      {"file_becomes_directory", "unlink A/foo; mkdir A/foo; create A/foo/x; fsync A/foo"},
      {"swap_by_three_renames",
       "rename A/foo A/t; rename B/old A/foo; rename A/t B/old; fsync B/old"},
      {"write_fsync_through_other_link",
       "link A/foo B/l; sync; write B/l 1000 3000; fdatasync A/foo; unlink A/foo; fsync B"},
      {"parent_created_fsync_child",
       "mkdir A/D; mkdir A/D/E; create A/D/E/f; append A/D/E/f 10; "
       "fsync A/D/E/f"},
      {"directory_block_becomes_data",
       "mkdir A/D; create A/D/f; fsync A/D; unlink A/D/f; rmdir A/D; fsync A; create A/1; append "
       "A/1 4096; fsync A/1"},
      {"data_block_becomes_directory",
       "create A/1; append A/1 4096; fsync A/1; unlink A/1; fsync A; mkdir A/D; create A/D/f; "
       "fsync A/D/f"},
      {"directory_blocks_reused_as_data",
       "mkdir A/D; create A/D/f; sync; unlink A/D/f; rmdir A/D; sync; append A/bar 40000; "
       "fsync A/bar; append A/bar 40000; fsync A/bar"},
  };
  return workloads;
}

}  // namespace sluice::crash
