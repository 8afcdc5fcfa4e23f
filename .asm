[Thread debugging using libthread_db enabled]
Using host libthread_db library "/lib/x86_64-linux-gnu/libthread_db.so.1".
0x00007f55758ed545 in __GI___clock_nanosleep (clock_id=clock_id@entry=1, flags=flags@entry=1, req=req@entry=0x7ffd9e6c34f0, rem=rem@entry=0x0) at ../sysdeps/unix/sysv/linux/clock_nanosleep.c:48
To enable execution of this file add
	add-auto-load-safe-path /root/.pyenv/versions/3.11.7/bin/python3.11-gdb.py
line to your configuration file "/root/.config/gdb/gdbinit".
To completely disable this security protection add
	set auto-load safe-path /
line to your configuration file "/root/.config/gdb/gdbinit".
For more information about this security protection see the
"Auto-loading safe path" section in the GDB manual.  E.g., run from the shell:
	info "(gdb)Auto-loading safe path"
total 3138
@@ 66 2.1% 7f554961c900
   0x7f554961c937 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+199>:	xor    %eax,%eax
   0x7f554961c939 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+201>:	test   %r11,%r11
   0x7f554961c93c <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+204>:	mov    %r14,%r12
   0x7f554961c93f <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+207>:	mov    %r11,%rcx
   0x7f554961c942 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+210>:	setg   %al
   0x7f554961c945 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+213>:	add    %rax,%r14
   0x7f554961c948 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+216>:	sub    %rax,%rcx
   0x7f554961c94b <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+219>:	test   %r11,%r11
   0x7f554961c94e <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+222>:	mov    %rcx,%r11
   0x7f554961c951 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+225>:	jle    0x7f554961cb94 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+804>
   0x7f554961c957 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+231>:	vmovsd (%rbx,%r12,8),%xmm3
   0x7f554961c95d <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+237>:	vucomisd %xmm0,%xmm3
   0x7f554961c961 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+241>:	jbe    0x7f554961c937 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+199>
   0x7f554961c963 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+243>:	cmpb   $0x0,(%r9,%r12,1)
   0x7f554961c968 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+248>:	je     0x7f554961c9a1 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+305>
   0x7f554961c96a <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+250>:	mov    0x10(%rdx),%rax
   0x7f554961c96e <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+254>:	mov    0xf8(%r10),%rsi
   0x7f554961c975 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+261>:	vmovapd %xmm1,%xmm2
   0x7f554961c979 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+265>:	mov    0x48(%rax),%rax
   0x7f554961c97d <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+269>:	lea    (%rax,%rax,2),%rdi
   0x7f554961c981 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+273>:	mov    %r12,%rax
   0x7f554961c984 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+276>:	add    %rsi,%rdi
   0x7f554961c987 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+279>:	sub    %rdi,%rax
   0x7f554961c98a <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+282>:	jl     0x7f554961c9a5 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+309>
   0x7f554961c98c <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+284>:	add    %rsi,%rdi
   0x7f554961c98f <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+287>:	cmp    %rdi,%r12
   0x7f554961c992 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+290>:	jge    0x7f554961c9ad <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+317>
   0x7f554961c994 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+292>:	shl    $0x3,%rax
@@ 64 2.0% 7f5549612d00
   0x7f5549612d1d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+205>:	mov    $0x1,%eax
   0x7f5549612d22 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+210>:	vaddsd %xmm1,%xmm0,%xmm4
   0x7f5549612d26 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+214>:	jmp    0x7f5549612d4d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+253>
   0x7f5549612d28 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+216>:	mov    (%rsp),%r11
   0x7f5549612d2c <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+220>:	mov    $0x1,%r8b
   0x7f5549612d2f <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+223>:	mov    0x20(%rsp),%rdi
   0x7f5549612d34 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+228>:	mov    0x18(%rsp),%r9
   0x7f5549612d39 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+233>:	mov    0x8(%rsp),%r10
   0x7f5549612d3e <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+238>:	xchg   %ax,%ax
   0x7f5549612d40 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+240>:	lea    0x1(%rbp),%rax
   0x7f5549612d44 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+244>:	cmp    %rbx,%rbp
   0x7f5549612d47 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+247>:	je     0x7f5549612fe7 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+919>
   0x7f5549612d4d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+253>:	mov    %rbp,%r15
   0x7f5549612d50 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+256>:	mov    %rax,%rbp
   0x7f5549612d53 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+259>:	cmp    %rcx,%r15
   0x7f5549612d56 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+262>:	je     0x7f5549612d40 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+240>
   0x7f5549612d58 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+264>:	vmovsd (%rdi,%r15,8),%xmm1
   0x7f5549612d5e <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+270>:	vucomisd %xmm1,%xmm5
   0x7f5549612d62 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+274>:	jae    0x7f5549612d40 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+240>
   0x7f5549612d64 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+276>:	vmovsd (%r10,%r15,8),%xmm3
   0x7f5549612d6a <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+282>:	vucomisd %xmm3,%xmm5
   0x7f5549612d6e <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+286>:	jae    0x7f5549612d40 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+240>
   0x7f5549612d70 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+288>:	vmovsd (%r9,%r15,8),%xmm2
   0x7f5549612d76 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+294>:	vucomisd %xmm2,%xmm4
   0x7f5549612d7a <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+298>:	jbe    0x7f5549612d40 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+240>
   0x7f5549612d7c <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+300>:	vdivsd %xmm3,%xmm1,%xmm1
   0x7f5549612d80 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+304>:	vaddsd %xmm2,%xmm1,%xmm1
   0x7f5549612d84 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+308>:	vucomisd %xmm0,%xmm1
@@ 59 1.9% 7f5549604580
   0x7f5549604580 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2560>:	vcvtqq2pd %zmm20,%zmm21
   0x7f5549604586 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2566>:	vcmplepd %zmm5,%zmm6,%k1
   0x7f554960458d <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2573>:	vcmplepd %zmm5,%zmm7,%k2
   0x7f5549604594 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2580>:	vcmplepd %zmm5,%zmm8,%k3
   0x7f554960459b <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2587>:	vcmplepd %zmm5,%zmm9,%k4
   0x7f55496045a2 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2594>:	vpcmpltq -0xc0(%r10,%rbp,8),%zmm11,%k1{%k1}
   0x7f55496045ab <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2603>:	vpcmpltq -0x80(%r10,%rbp,8),%zmm14,%k2{%k2}
   0x7f55496045b4 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2612>:	vpcmpltq -0x40(%r10,%rbp,8),%zmm17,%k3{%k3}
   0x7f55496045bd <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2621>:	vpcmpltq (%r10,%rbp,8),%zmm20,%k4{%k4}
   0x7f55496045c5 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2629>:	vmovapd %zmm26,%zmm6
   0x7f55496045cb <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2635>:	vmovapd %zmm26,%zmm7
   0x7f55496045d1 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2641>:	vmovapd %zmm26,%zmm8
   0x7f55496045d7 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2647>:	vmovapd %zmm26,%zmm9
   0x7f55496045dd <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2653>:	vmulpd %zmm12,%zmm4,%zmm12
   0x7f55496045e3 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2659>:	vmulpd %zmm15,%zmm4,%zmm15
   0x7f55496045e9 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2665>:	vmulpd %zmm18,%zmm4,%zmm18
   0x7f55496045ef <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2671>:	vmulpd %zmm21,%zmm4,%zmm21
   0x7f55496045f5 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2677>:	vaddpd %zmm12,%zmm10,%zmm6{%k1}
   0x7f55496045fb <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2683>:	vaddpd %zmm15,%zmm13,%zmm7{%k2}
   0x7f5549604601 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2689>:	vaddpd %zmm18,%zmm16,%zmm8{%k3}
   0x7f5549604607 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2695>:	vaddpd %zmm21,%zmm19,%zmm9{%k4}
   0x7f554960460d <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2701>:	vmovupd %zmm6,-0xc0(%rax,%rbp,8)
   0x7f5549604615 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2709>:	vmovupd %zmm7,-0x80(%rax,%rbp,8)
   0x7f554960461d <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2717>:	vmovupd %zmm8,-0x40(%rax,%rbp,8)
   0x7f5549604625 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2725>:	vmovupd %zmm9,(%rax,%rbp,8)
   0x7f554960462c <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2732>:	add    $0x20,%rbp
   0x7f5549604630 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2736>:	cmp    %rbp,%rdx
   0x7f5549604633 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2739>:	jne    0x7f5549604500 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2432>
@@ 57 1.8% 7f5549604d80
   0x7f5549604d87 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+855>:	vpxor  %xmm4,%xmm4,%xmm4
   0x7f5549604d8b <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+859>:	nopl   0x0(%rax,%rax,1)
   0x7f5549604d90 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+864>:	vpcmpeqq (%rsi,%rdx,8),%zmm0,%k0
   0x7f5549604d97 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+871>:	vpcmpeqq 0x40(%rsi,%rdx,8),%zmm0,%k1
   0x7f5549604d9f <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+879>:	vpcmpeqq 0x80(%rsi,%rdx,8),%zmm0,%k2
   0x7f5549604da7 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+887>:	vpcmpeqq 0xc0(%rsi,%rdx,8),%zmm0,%k3
   0x7f5549604daf <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+895>:	add    $0x20,%rdx
   0x7f5549604db3 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+899>:	vpmovm2q %k0,%zmm5
   0x7f5549604db9 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+905>:	vpsubq %zmm5,%zmm1,%zmm1
   0x7f5549604dbf <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+911>:	vpmovm2q %k1,%zmm5
   0x7f5549604dc5 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+917>:	vpsubq %zmm5,%zmm2,%zmm2
   0x7f5549604dcb <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+923>:	vpmovm2q %k2,%zmm5
   0x7f5549604dd1 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+929>:	vpsubq %zmm5,%zmm3,%zmm3
   0x7f5549604dd7 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+935>:	vpmovm2q %k3,%zmm5
   0x7f5549604ddd <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+941>:	vpsubq %zmm5,%zmm4,%zmm4
   0x7f5549604de3 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+947>:	cmp    %rdx,%r11
   0x7f5549604de6 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+950>:	jne    0x7f5549604d90 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+864>
   0x7f5549604de8 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+952>:	vpaddq %zmm1,%zmm2,%zmm1
   0x7f5549604dee <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+958>:	vpaddq %zmm3,%zmm4,%zmm3
   0x7f5549604df4 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+964>:	vpaddq %zmm1,%zmm3,%zmm1
   0x7f5549604dfa <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+970>:	vextracti64x4 $0x1,%zmm1,%ymm2
   0x7f5549604e01 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+977>:	vpaddq %zmm2,%zmm1,%zmm1
   0x7f5549604e07 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+983>:	vextracti128 $0x1,%ymm1,%xmm2
   0x7f5549604e0d <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+989>:	vpaddq %xmm2,%xmm1,%xmm1
   0x7f5549604e11 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+993>:	vpshufd $0xee,%xmm1,%xmm2
   0x7f5549604e16 <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+998>:	vpaddq %xmm2,%xmm1,%xmm1
   0x7f5549604e1a <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+1002>:	vmovq  %xmm1,%rdx
   0x7f5549604e1f <_ZN4twin8policies6router8cheapestB3v62B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedE+1007>:	cmp    %r11,%rax
@@ 47 1.5% 7f554961cb80
   0x7f554961cbb2 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+834>:	mov    $0x1,%r11d
   0x7f554961cbb8 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+840>:	xor    %r15d,%r15d
   0x7f554961cbbb <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+843>:	vmovsd (%rax),%xmm0
   0x7f554961cbbf <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+847>:	vmovsd (%rcx),%xmm1
   0x7f554961cbc3 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+851>:	dec    %rsi
   0x7f554961cbc6 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+854>:	jmp    0x7f554961cbf2 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+898>
   0x7f554961cbc8 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+856>:	nopl   0x0(%rax,%rax,1)
   0x7f554961cbd0 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+864>:	mov    %ebp,%edi
   0x7f554961cbd2 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+866>:	xor    %eax,%eax
   0x7f554961cbd4 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+868>:	test   %rsi,%rsi
   0x7f554961cbd7 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+871>:	mov    %r11,%r15
   0x7f554961cbda <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+874>:	mov    %rsi,%rcx
   0x7f554961cbdd <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+877>:	setg   %al
   0x7f554961cbe0 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+880>:	add    %rax,%r11
   0x7f554961cbe3 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+883>:	sub    %rax,%rcx
   0x7f554961cbe6 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+886>:	test   %rsi,%rsi
   0x7f554961cbe9 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+889>:	mov    %rcx,%rsi
   0x7f554961cbec <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+892>:	jle    0x7f554961cdb1 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+1345>
   0x7f554961cbf2 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+898>:	cmpb   $0x0,(%r9,%r15,1)
   0x7f554961cbf7 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+903>:	mov    %edi,%ebp
   0x7f554961cbf9 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+905>:	je     0x7f554961cbd0 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+864>
   0x7f554961cbfb <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+907>:	mov    0x10(%rdx),%rax
   0x7f554961cbff <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+911>:	mov    0xf8(%r10),%rdi
   0x7f554961cc06 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+918>:	vmovapd %xmm0,%xmm2
   0x7f554961cc0a <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+922>:	mov    0x48(%rax),%rax
   0x7f554961cc0e <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+926>:	lea    (%rax,%rax,2),%r8
   0x7f554961cc12 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+930>:	mov    %r15,%rax
   0x7f554961cc15 <_ZN4twin6engine6phases7traffic12settle_linksB4v256B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5World+933>:	add    %rdi,%r8
@@ 39 1.2% 7f5549613000
   0x7f5549613002 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+946>:	lea    (%rax,%rax,2),%rax
   0x7f5549613006 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+950>:	lea    (%rax,%rcx,2),%rbp
   0x7f554961300a <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+954>:	sub    %r13,%rbp
   0x7f554961300d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+957>:	test   %rbp,%rbp
   0x7f5549613010 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+960>:	jle    0x7f554961349b <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+2123>
   0x7f5549613016 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+966>:	lea    0x1(%r13),%rax
   0x7f554961301a <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+970>:	dec    %rbp
   0x7f554961301d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+973>:	test   %r12,%r12
   0x7f5549613020 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+976>:	jle    0x7f5549613274 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1572>
   0x7f5549613026 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+982>:	vxorpd %xmm2,%xmm2,%xmm2
   0x7f554961302a <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+986>:	jmp    0x7f5549613048 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1016>
   0x7f554961302c <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+988>:	nopl   0x0(%rax)
   0x7f5549613030 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+992>:	mov    (%rsp),%r11
   0x7f5549613034 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+996>:	mov    $0x1,%r8b
   0x7f5549613037 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+999>:	lea    0x1(%r13),%rax
   0x7f554961303b <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1003>:	test   %rbp,%rbp
   0x7f554961303e <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1006>:	lea    -0x1(%rbp),%rbp
   0x7f5549613042 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1010>:	jle    0x7f554961349b <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+2123>
   0x7f5549613048 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1016>:	mov    0x40(%rsp),%rcx
   0x7f554961304d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1021>:	mov    %r13,%r15
   0x7f5549613050 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1024>:	mov    %r15,%rbx
   0x7f5549613053 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1027>:	sar    $0x3f,%rbx
   0x7f5549613057 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1031>:	mov    %rax,%r13
   0x7f554961305a <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1034>:	mov    %rbx,%rax
   0x7f554961305d <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1037>:	and    0x48(%rsp),%rax
   0x7f5549613062 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1042>:	lea    (%rcx,%r15,8),%rcx
   0x7f5549613066 <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1046>:	vmovsd (%rcx,%rax,8),%xmm0
   0x7f554961306b <_ZN4twin6engine6phases7streams8room_forB4v117B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxdd+1051>:	vucomisd %xmm2,%xmm0
@@ 39 1.2% 7f5549617b00
   0x7f5549617b04 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+372>:	je     0x7f5549617bd9 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+585>
   0x7f5549617b0a <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+378>:	inc    %rdx
   0x7f5549617b0d <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+381>:	inc    %r9
   0x7f5549617b10 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+384>:	dec    %rbx
   0x7f5549617b13 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+387>:	cmp    $0x1,%rbx
   0x7f5549617b17 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+391>:	jg     0x7f5549617af0 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+352>
   0x7f5549617b19 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+393>:	jmp    0x7f5549617a68 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+216>
   0x7f5549617b1e <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+398>:	xor    %r9d,%r9d
   0x7f5549617b21 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+401>:	jmp    0x7f5549617b4e <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+446>
   0x7f5549617b23 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+403>:	mov    %rdx,%r9
   0x7f5549617b26 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+406>:	mov    -0x28(%rsp),%rdx
   0x7f5549617b2b <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+411>:	xor    %r14d,%r14d
   0x7f5549617b2e <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+414>:	test   %r11,%r11
   0x7f5549617b31 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+417>:	mov    %r11,%r15
   0x7f5549617b34 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+420>:	mov    %rbx,%rbp
   0x7f5549617b37 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+423>:	setg   %r14b
   0x7f5549617b3b <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+427>:	lea    (%rbx,%r14,1),%r13
   0x7f5549617b3f <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+431>:	sub    %r14,%r15
   0x7f5549617b42 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+434>:	test   %r11,%r11
   0x7f5549617b45 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+437>:	mov    %r15,%r11
   0x7f5549617b48 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+440>:	jle    0x7f5549617bd9 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+585>
   0x7f5549617b4e <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+446>:	mov    -0x10(%rsp),%r12
   0x7f5549617b53 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+451>:	mov    %rbp,%r14
   0x7f5549617b56 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+454>:	sar    $0x3f,%r14
   0x7f5549617b5a <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+458>:	mov    %r13,%rbx
   0x7f5549617b5d <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+461>:	mov    %r14,%r15
   0x7f5549617b60 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+464>:	and    -0x8(%rsp),%r15
   0x7f5549617b65 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+469>:	lea    (%r12,%rbp,4),%r12
@@ 39 1.2% 7f5549619300
   0x7f5549619320 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx>:	push   %rbp
   0x7f5549619321 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+1>:	push   %r15
   0x7f5549619323 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+3>:	push   %r14
   0x7f5549619325 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+5>:	push   %r13
   0x7f5549619327 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+7>:	push   %r12
   0x7f5549619329 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+9>:	push   %rbx
   0x7f554961932a <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+10>:	mov    0x38(%rdx),%rax
   0x7f554961932e <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+14>:	mov    0x30(%rdx),%rsi
   0x7f5549619332 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+18>:	lea    0x0(,%rcx,4),%r10
   0x7f554961933a <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+26>:	mov    %rcx,%r9
   0x7f554961933d <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+29>:	sar    $0x3f,%r9
   0x7f5549619341 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+33>:	and    %r9,%rax
   0x7f5549619344 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+36>:	add    %r10,%rsi
   0x7f5549619347 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+39>:	movslq (%rsi,%rax,4),%r11
   0x7f554961934b <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+43>:	cmp    %r11,%r8
   0x7f554961934e <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+46>:	je     0x7f5549619649 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+809>
   0x7f5549619354 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+52>:	mov    0x8(%rdx),%rbx
   0x7f5549619358 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+56>:	mov    %rdi,-0x40(%rsp)
   0x7f554961935d <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+61>:	mov    0x10(%rdx),%rdi
   0x7f5549619361 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+65>:	mov    %r8,%r14
   0x7f5549619364 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+68>:	sar    $0x3f,%r14
   0x7f5549619368 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+72>:	mov    %r14,%r15
   0x7f554961936b <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+75>:	and    %r9,%rbx
   0x7f554961936e <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+78>:	and    %rdi,%r15
   0x7f5549619371 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+81>:	mov    %rdi,-0x38(%rsp)
   0x7f5549619376 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+86>:	add    %rcx,%rbx
   0x7f5549619379 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+89>:	imul   %rdi,%rbx
   0x7f554961937d <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+93>:	shl    $0x2,%rbx
@@ 35 1.1% 7f5549604500
   0x7f5549604508 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2440>:	vmovupd -0x80(%rsi,%rbp,8),%zmm7
   0x7f5549604510 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2448>:	vmovupd -0x40(%rsi,%rbp,8),%zmm8
   0x7f5549604518 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2456>:	vmovupd (%rsi,%rbp,8),%zmm9
   0x7f554960451f <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2463>:	vmovdqu64 -0xc0(%r14,%rbp,8),%zmm11
   0x7f5549604527 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2471>:	vmovdqu64 -0x80(%r14,%rbp,8),%zmm14
   0x7f554960452f <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2479>:	vmovdqu64 -0x40(%r14,%rbp,8),%zmm17
   0x7f5549604537 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2487>:	vmovdqu64 (%r14,%rbp,8),%zmm20
   0x7f554960453e <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2494>:	vmulpd %zmm6,%zmm3,%zmm10
   0x7f5549604544 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2500>:	vmulpd %zmm7,%zmm3,%zmm13
   0x7f554960454a <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2506>:	vmulpd %zmm8,%zmm3,%zmm16
   0x7f5549604550 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2512>:	vmulpd %zmm9,%zmm3,%zmm19
   0x7f5549604556 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2518>:	vaddpd %zmm6,%zmm23,%zmm6
   0x7f554960455c <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2524>:	vaddpd %zmm7,%zmm23,%zmm7
   0x7f5549604562 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2530>:	vaddpd %zmm8,%zmm23,%zmm8
   0x7f5549604568 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2536>:	vaddpd %zmm9,%zmm23,%zmm9
   0x7f554960456e <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2542>:	vcvtqq2pd %zmm11,%zmm12
   0x7f5549604574 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2548>:	vcvtqq2pd %zmm14,%zmm15
   0x7f554960457a <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2554>:	vcvtqq2pd %zmm17,%zmm18
   0x7f5549604580 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2560>:	vcvtqq2pd %zmm20,%zmm21
   0x7f5549604586 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2566>:	vcmplepd %zmm5,%zmm6,%k1
   0x7f554960458d <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2573>:	vcmplepd %zmm5,%zmm7,%k2
   0x7f5549604594 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2580>:	vcmplepd %zmm5,%zmm8,%k3
   0x7f554960459b <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2587>:	vcmplepd %zmm5,%zmm9,%k4
   0x7f55496045a2 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2594>:	vpcmpltq -0xc0(%r10,%rbp,8),%zmm11,%k1{%k1}
   0x7f55496045ab <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2603>:	vpcmpltq -0x80(%r10,%rbp,8),%zmm14,%k2{%k2}
   0x7f55496045b4 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2612>:	vpcmpltq -0x40(%r10,%rbp,8),%zmm17,%k3{%k3}
   0x7f55496045bd <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2621>:	vpcmpltq (%r10,%rbp,8),%zmm20,%k4{%k4}
   0x7f55496045c5 <_ZN4twin6engine6phases6router7reserveB3v60B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxd+2629>:	vmovapd %zmm26,%zmm6
@@ 35 1.1% 7f5549619380
   0x7f5549619381 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+97>:	add    (%rdx),%rbx
   0x7f5549619384 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+100>:	lea    (%rbx,%r8,4),%rdi
   0x7f5549619388 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+104>:	movslq (%rdi,%r15,4),%rdi
   0x7f554961938c <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+108>:	cmp    $0xfffffffffffffffe,%rdi
   0x7f5549619390 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+112>:	jne    0x7f55496193fb <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+219>
   0x7f5549619392 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+114>:	mov    0x58(%rdx),%rdi
   0x7f5549619396 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+118>:	mov    0x50(%rdx),%r12
   0x7f554961939a <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+122>:	mov    %r10,-0x48(%rsp)
   0x7f554961939f <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+127>:	lea    0x0(,%rcx,8),%r10
   0x7f55496193a7 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+135>:	mov    0x68(%rdx),%r11
   0x7f55496193ab <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+139>:	mov    0x60(%rdx),%rbp
   0x7f55496193af <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+143>:	mov    %r10,-0x8(%rsp)
   0x7f55496193b4 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+148>:	and    %r9,%rdi
   0x7f55496193b7 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+151>:	add    %r10,%r12
   0x7f55496193ba <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+154>:	and    %r9,%r11
   0x7f55496193bd <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+157>:	add    %r10,%rbp
   0x7f55496193c0 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+160>:	mov    (%r12,%rdi,8),%r13
   0x7f55496193c4 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+164>:	cmp    0x0(%rbp,%r11,8),%r13
   0x7f55496193c9 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+169>:	jge    0x7f5549619467 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+327>
   0x7f55496193cf <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+175>:	inc    %r13
   0x7f55496193d2 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+178>:	mov    -0x48(%rsp),%r10
   0x7f55496193d7 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+183>:	mov    %r13,(%r12,%rdi,8)
   0x7f55496193db <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+187>:	mov    -0x40(%rsp),%rdi
   0x7f55496193e0 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+192>:	mov    0x20(%rdx),%r13
   0x7f55496193e4 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+196>:	mov    0x28(%rdx),%r12
   0x7f55496193e8 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+200>:	mov    0x18(%rdx),%rbp
   0x7f55496193ec <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+204>:	and    %r9,%r13
   0x7f55496193ef <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+207>:	add    %rcx,%r13
@@ 33 1.1% 7f5549619400
   0x7f554961941c <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+252>:	lea    (%r11,%r13,4),%rbp
   0x7f5549619420 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+256>:	lea    0x0(%rbp,%r8,4),%r11
   0x7f5549619425 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+261>:	mov    (%r11,%rcx,4),%ecx
   0x7f5549619429 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+265>:	cmp    $0xffffffff,%edi
   0x7f554961942c <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+268>:	je     0x7f5549619543 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+547>
   0x7f5549619432 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+274>:	xor    %r11d,%r11d
   0x7f5549619435 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+277>:	test   %edi,%edi
   0x7f5549619437 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+279>:	cmovs  %r12,%r11
   0x7f554961943b <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+283>:	lea    0x0(%rbp,%r11,4),%r11
   0x7f5549619440 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+288>:	mov    %ecx,(%r11,%rdi,4)
   0x7f5549619444 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+292>:	cmp    $0xffffffff,%ecx
   0x7f5549619447 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+295>:	je     0x7f554961954f <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+559>
   0x7f554961944d <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+301>:	xor    %ebp,%ebp
   0x7f554961944f <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+303>:	test   %ecx,%ecx
   0x7f5549619451 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+305>:	movslq %ecx,%r11
   0x7f5549619454 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+308>:	cmovs  -0x38(%rsp),%rbp
   0x7f554961945a <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+314>:	lea    (%rbx,%rbp,4),%rcx
   0x7f554961945e <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+318>:	mov    %edi,(%rcx,%r11,4)
   0x7f5549619462 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+322>:	jmp    0x7f55496195f5 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+725>
   0x7f5549619467 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+327>:	mov    0x48(%rdx),%r11
   0x7f554961946b <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+331>:	mov    0x40(%rdx),%r12
   0x7f554961946f <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+335>:	lea    0x0(,%rcx,4),%r10
   0x7f5549619477 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+343>:	and    %r9,%r11
   0x7f554961947a <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+346>:	add    %r10,%r12
   0x7f554961947d <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+349>:	movslq (%r12,%r11,4),%rdi
   0x7f5549619481 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+353>:	mov    %rdi,-0x30(%rsp)
   0x7f5549619486 <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+358>:	cmp    $0xffffffffffffffff,%rdi
   0x7f554961948a <_ZN4twin8policies11memory_pool10keep_blockB4v101B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE9BlockPoolxx+362>:	mov    -0x40(%rsp),%rdi
@@ 30 1.0% 7f5549617a80
   0x7f5549617a8f <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+255>:	mov    -0x10(%rsp),%r12
   0x7f5549617a94 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+260>:	mov    %rbp,%r14
   0x7f5549617a97 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+263>:	mov    %r14,%r15
   0x7f5549617a9a <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+266>:	sar    $0x3f,%r15
   0x7f5549617a9e <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+270>:	mov    %r13,%rbp
   0x7f5549617aa1 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+273>:	mov    %r15,%rbx
   0x7f5549617aa4 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+276>:	and    -0x8(%rsp),%rbx
   0x7f5549617aa9 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+281>:	lea    (%r12,%r14,4),%r12
   0x7f5549617aad <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+285>:	movslq (%r12,%rbx,4),%rbx
   0x7f5549617ab1 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+289>:	test   %rbx,%rbx
   0x7f5549617ab4 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+292>:	jle    0x7f5549617a70 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+224>
   0x7f5549617ab6 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+294>:	mov    -0x20(%rsp),%r12
   0x7f5549617abb <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+299>:	and    %rdx,%r15
   0x7f5549617abe <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+302>:	lea    (%r12,%r14,8),%r14
   0x7f5549617ac2 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+306>:	mov    -0x18(%rsp),%r12
   0x7f5549617ac7 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+311>:	mov    (%r14,%r15,8),%rdx
   0x7f5549617acb <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+315>:	mov    0x10(%r12),%r15
   0x7f5549617ad0 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+320>:	mov    %r15,%r13
   0x7f5549617ad3 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+323>:	imul   %rcx,%r13
   0x7f5549617ad7 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+327>:	shl    $0x2,%r13
   0x7f5549617adb <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+331>:	add    (%r12),%r13
   0x7f5549617adf <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+335>:	lea    (%r9,%rbx,1),%r12
   0x7f5549617ae3 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+339>:	inc    %rbx
   0x7f5549617ae6 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+342>:	cs nopw 0x0(%rax,%rax,1)
   0x7f5549617af0 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+352>:	mov    %rdx,%r14
   0x7f5549617af3 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+355>:	sar    $0x3f,%r14
   0x7f5549617af7 <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+359>:	and    %r15,%r14
   0x7f5549617afa <_ZN4twin6engine6phases4pool13cached_tokensB4v121B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldxi+362>:	lea    0x0(%r13,%r14,4),%r14
@@ 30 1.0% 7f554961bf80
   0x7f554961bf85 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4597>:	mov    0x10(%rsi),%r15
   0x7f554961bf89 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4601>:	xor    %r12d,%r12d
   0x7f554961bf8c <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4604>:	vpxor  %xmm4,%xmm4,%xmm4
   0x7f554961bf90 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4608>:	vmovsd %xmm0,0x40(%rsp)
   0x7f554961bf96 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4614>:	mov    %rsi,0x38(%rsp)
   0x7f554961bf9b <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4619>:	vmovsd (%rax),%xmm5
   0x7f554961bf9f <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4623>:	vmovapd %xmm5,0x50(%rsp)
   0x7f554961bfa5 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4629>:	jmp    0x7f554961bff4 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4708>
   0x7f554961bfa7 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4631>:	vmovsd 0x40(%rsp),%xmm0
   0x7f554961bfad <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4637>:	vmovapd 0x50(%rsp),%xmm5
   0x7f554961bfb3 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4643>:	mov    0x38(%rsp),%rsi
   0x7f554961bfb8 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4648>:	movq   $0x0,(%r15,%r12,8)
   0x7f554961bfc0 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4656>:	vxorpd %xmm4,%xmm4,%xmm4
   0x7f554961bfc4 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4660>:	movq   $0x0,0x0(%rbp,%r12,8)
   0x7f554961bfcd <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4669>:	nopl   (%rax)
   0x7f554961bfd0 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4672>:	xor    %eax,%eax
   0x7f554961bfd2 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4674>:	mov    (%r14,%r12,8),%rcx
   0x7f554961bfd6 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4678>:	inc    %r12
   0x7f554961bfd9 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4681>:	mov    %rcx,%rdx
   0x7f554961bfdc <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4684>:	sar    $0x3f,%rdx
   0x7f554961bfe0 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4688>:	and    0x8(%rsp),%rdx
   0x7f554961bfe5 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4693>:	add    %rbx,%rcx
   0x7f554961bfe8 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4696>:	mov    %al,(%rdx,%rcx,1)
   0x7f554961bfeb <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4699>:	cmp    %r12,%r13
   0x7f554961bfee <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4702>:	je     0x7f554961c0a4 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4884>
   0x7f554961bff4 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4708>:	vmovsd (%r15,%r12,8),%xmm3
   0x7f554961bffa <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4714>:	vucomisd %xmm4,%xmm3
   0x7f554961bffe <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4718>:	jbe    0x7f554961bfd0 <_ZN4twin6engine6phases7traffic4markB4v254B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5Worldd+4672>
@@ 29 0.9% 7f554960b400
   0x7f554960b400 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd>:	push   %rbp
   0x7f554960b401 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+1>:	push   %r15
   0x7f554960b403 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+3>:	push   %r14
   0x7f554960b405 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+5>:	push   %r13
   0x7f554960b407 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+7>:	push   %r12
   0x7f554960b409 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+9>:	push   %rbx
   0x7f554960b40a <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+10>:	vsubsd %xmm0,%xmm1,%xmm4
   0x7f554960b40e <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+14>:	vxorpd %xmm5,%xmm5,%xmm5
   0x7f554960b412 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+18>:	mov    %rdi,%r14
   0x7f554960b415 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+21>:	vucomisd %xmm4,%xmm5
   0x7f554960b419 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+25>:	jae    0x7f554960bab8 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+1720>
   0x7f554960b41f <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+31>:	vucomisd %xmm2,%xmm0
   0x7f554960b423 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+35>:	jae    0x7f554960bab8 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+1720>
   0x7f554960b429 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+41>:	vdivsd %xmm2,%xmm0,%xmm5
   0x7f554960b42d <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+45>:	mov    0x40(%rsp),%r10
   0x7f554960b432 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+50>:	mov    0xd0(%rsp),%rsi
   0x7f554960b43a <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+58>:	mov    0xb8(%rsp),%rdx
   0x7f554960b442 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+66>:	mov    0x80(%rsp),%rcx
   0x7f554960b44a <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+74>:	mov    0x48(%rsp),%rax
   0x7f554960b44f <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+79>:	lea    -0x1(%r10),%r9
   0x7f554960b453 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+83>:	lea    -0x2(%r10),%rdi
   0x7f554960b457 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+87>:	vcvtsi2sd %r9,%xmm15,%xmm6
   0x7f554960b45c <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+92>:	vmulsd %xmm6,%xmm5,%xmm5
   0x7f554960b460 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+96>:	vcvttsd2si %xmm5,%r11
   0x7f554960b465 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+101>:	vminsd %xmm1,%xmm2,%xmm5
   0x7f554960b469 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+105>:	vdivsd %xmm2,%xmm5,%xmm7
   0x7f554960b46d <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+109>:	cmp    %r11,%rdi
   0x7f554960b470 <_ZN4twin6engine5clock6spreadB3v90B52c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAw4hWsFpNAA_3d_3dE5ArrayIdLi2E1C7mutable7alignedEdd5ArrayIxLi1E1C7mutable7alignedE5ArrayIdLi1E1C7mutable7alignedExdd+112>:	cmovl  %rdi,%r11
[Inferior 1 (process 31355) detached]
